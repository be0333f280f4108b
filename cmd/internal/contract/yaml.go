package contract

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlOf returns a JSON document as YAML, in the same order.
func yamlOf(document io.Reader) (string, error) {
	decoder := json.NewDecoder(document)
	decoder.UseNumber()
	node, err := nodeOf(decoder)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(node); err != nil {
		return "", fmt.Errorf("write YAML: %w", err)
	}
	return text.String(), encoder.Close()
}

func nodeOf(from *json.Decoder) (*yaml.Node, error) {
	token, err := from.Token()
	if err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	node := new(yaml.Node)
	switch value := token.(type) {
	case json.Delim:
		node.Kind = yaml.SequenceNode
		if value == '{' {
			node.Kind = yaml.MappingNode
		}
		for from.More() { // of an object, the names and the values in turn
			part, err := nodeOf(from)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, part)
		}
		_, err = from.Token()
		return node, err
	case json.Number:
		node.Kind, node.Value = yaml.ScalarNode, value.String()
		return node, nil
	}
	return node, node.Encode(token)
}
