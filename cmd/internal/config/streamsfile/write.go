package streamsfile

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// plainValue matches numbers and truth values, which Write does not quote.
var plainValue = regexp.MustCompile(`^(0|[1-9][0-9]*|true|false)$`)

// Write returns the text of a file with these settings and streams. From that text, Read
// returns the same names and values.
func Write(settings []Value, streams []Stream) (string, error) {
	root, own := mapping(), mapping()
	if len(settings) > 0 {
		root.add(settingsKey, valuesNode(settings))
	}
	for _, st := range streams {
		own.add(st.Name, valuesNode(st.Values))
	}
	if len(streams) > 0 {
		root.add(streamsKey, &own.Node)
	}
	var b strings.Builder
	to := yaml.NewEncoder(&b)
	to.SetIndent(2)
	if err := to.Encode(&root.Node); err != nil {
		return "", err
	}
	return b.String(), to.Close()
}

type mappingNode struct{ yaml.Node }

func mapping() *mappingNode { return &mappingNode{yaml.Node{Kind: yaml.MappingNode}} }

func (m *mappingNode) add(name string, value *yaml.Node) {
	m.Content = append(m.Content, textNode(name), value)
}

func valuesNode(all []Value) *yaml.Node {
	m := mapping()
	for _, v := range all {
		value := textNode(v.Text)
		if plainValue.MatchString(v.Text) {
			value.Tag = ""
		}
		m.add(v.Name, value)
	}
	return &m.Node
}

func textNode(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}
