package bridge

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// RouteDrop is the Event.Route of an event that goes to no topic.
const RouteDrop uint8 = 255

// dropTarget is the target of a route that drops events.
const dropTarget = "drop"

// The bounds of routes: every checkpoint has all topics and the text of the routes.
const (
	maxRoutedTopics = 32
	maxRoutesText   = 1000
)

// Routes decide which topic gets which event. The first rule that matches counts. An event
// without such a rule goes to the stream's default topic. The zero value has no rules.
type Routes struct {
	// Text is the setting that the routes were parsed from, without spaces.
	Text  string
	Rules []Route
	// Topics are the topics of the rules, without duplicates and without the default topic.
	Topics []string
}

// Route is one rule.
type Route struct {
	// Pointer is the JSON pointer to the compared value, empty for the event's type.
	// Pattern is compared with the whole value; each * in it matches any text.
	Pointer, Pattern string
	// To is the Event.Route of the events that match.
	To uint8
}

// ParseRoutes parses entries that commas or line breaks separate: PATTERN=TOPIC, or
// /POINTER=PATTERN:TOPIC.
func ParseRoutes(text, defaultTopic string) (Routes, error) {
	var r Routes
	for entry := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ',' || c == '\n' }) {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		rule, topic, err := parseRoute(entry)
		if err != nil {
			return Routes{}, err
		}
		known := func(k Route) bool { return k.Pointer == rule.Pointer && k.Pattern == rule.Pattern }
		if slices.ContainsFunc(r.Rules, known) {
			return Routes{}, fmt.Errorf("%q: the pattern is listed twice", entry)
		}
		rule.To = r.target(topic, defaultTopic)
		r.Rules = append(r.Rules, rule)
		r.Text += "," + entry
	}
	r.Text = strings.TrimPrefix(r.Text, ",")
	switch {
	case len(r.Topics) > maxRoutedTopics:
		return Routes{}, fmt.Errorf("names %d topics, at most %d are allowed", len(r.Topics), maxRoutedTopics)
	case len(r.Text) > maxRoutesText:
		return Routes{}, fmt.Errorf("has %d bytes, at most %d are allowed", len(r.Text), maxRoutesText)
	}
	return r, nil
}

func parseRoute(entry string) (rule Route, topic string, err error) {
	found := true
	if strings.HasPrefix(entry, "/") {
		i := strings.LastIndexByte(entry, ':')
		rule.Pointer, rule.Pattern, found = strings.Cut(entry[:max(i, 0)], "=")
		topic = entry[i+1:]
	} else if i := strings.LastIndexByte(entry, '='); i >= 0 {
		rule.Pattern, topic = entry[:i], entry[i+1:]
	}
	if !found || rule.Pattern == "" || topic == "" {
		return rule, "", fmt.Errorf("%q is neither PATTERN=TOPIC nor /POINTER=PATTERN:TOPIC", entry)
	}
	return rule, topic, nil
}

// target returns the Event.Route of a topic, and adds the topic.
func (r *Routes) target(topic, defaultTopic string) uint8 {
	switch topic {
	case dropTarget:
		return RouteDrop
	case defaultTopic:
		return 0
	}
	i := slices.Index(r.Topics, topic)
	if i < 0 {
		i, r.Topics = len(r.Topics), append(r.Topics, topic)
	}
	return uint8(min(i, maxRoutedTopics) + 1) // ParseRoutes rejects more
}

// Target returns the topic of an Event.Route, or "drop".
func (r *Routes) Target(route uint8, defaultTopic string) string {
	switch route {
	case 0:
		return defaultTopic
	case RouteDrop:
		return dropTarget
	}
	return r.Topics[route-1]
}

// Drops reports whether a rule drops events.
func (r *Routes) Drops() bool {
	return slices.ContainsFunc(r.Rules, func(rule Route) bool { return rule.To == RouteDrop })
}

// ByType reports whether a rule compares the event's type.
func (r *Routes) ByType() bool {
	return slices.ContainsFunc(r.Rules, func(rule Route) bool { return rule.Pointer == "" })
}

// Matches reports whether a value matches the pattern. An absent value is nil and matches
// no pattern.
func (r *Route) Matches(value []byte) bool {
	first, rest, wild := strings.Cut(r.Pattern, "*")
	if value == nil || !wild {
		return value != nil && string(value) == r.Pattern
	}
	if !bytes.HasPrefix(value, []byte(first)) {
		return false
	}
	value = value[len(first):]
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return bytes.HasSuffix(value, []byte(part))
		}
		i := bytes.Index(value, []byte(part))
		if i < 0 {
			return false
		}
		value, rest = value[i+len(part):], after
	}
}
