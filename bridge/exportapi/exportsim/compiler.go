package exportsim

import (
	"strconv"
	"strings"
)

// compiler expands the grammar into templates. If a rule has alternatives, it chooses one
// at random. It panics on a mistake in the grammar.
type compiler struct {
	grammar []map[string][]string // searched in this order
	state   uint64                // state of the random numbers
	typ     string                // <type>
	item    int                   // <item>: the index in the innermost list
	out     []byte                // the template so far
}

func newCompiler(c Config) *compiler {
	return &compiler{grammar: grammarOf(c.Schema), state: mix(c.Seed ^ mix(saltGrammar))}
}

// compileEvents makes templates of the event types of the schema: each type at least once,
// the rest by weight.
func compileEvents(c Config) []template {
	p := newCompiler(c)
	types := typesOf(c.Schema)
	var once, lots []int
	for kind, t := range types {
		if t.weight > 0 {
			once = append(once, kind)
		}
		for range t.weight {
			lots = append(lots, kind)
		}
	}
	all := make([]template, 0, eventTemplates)
	for n := range eventTemplates {
		kind := lots[p.below(len(lots))]
		if n < len(once) {
			kind = once[n]
		}
		p.typ = types[kind].name
		t := p.compile("event")
		t.kind = kind
		all = append(all, t)
	}
	return all
}

// compileItems makes the templates of the sessions or the users.
func compileItems(c Config, rule string) []template {
	p := newCompiler(c)
	all := make([]template, itemTemplates)
	for i := range all {
		all[i] = p.compile(rule)
	}
	return all
}

func (c *compiler) compile(rule string) template {
	c.out = c.out[:0]
	c.expand(rule)
	return template{parts: split(string(c.out))}
}

// below returns a random number in [0, n).
func (c *compiler) below(n int) int {
	c.state += golden
	return int(mix(c.state) >> 1 % uint64(n))
}

// expand writes one alternative of a rule.
func (c *compiler) expand(rule string) {
	for _, layer := range c.grammar {
		if alternatives, ok := layer[rule]; ok {
			c.write(alternatives[c.below(len(alternatives))])
			return
		}
	}
	panic("exportsim: the grammar has no rule " + rule)
}

// write copies text and replaces each <name> or <name:argument:...> in it.
func (c *compiler) write(text string) {
	for n, part := range split(text) {
		if n%2 == 0 {
			c.out = append(c.out, part...)
		} else if part != "" {
			c.fill(part)
		}
	}
}

func (c *compiler) fill(placeholder string) {
	name, arguments, _ := strings.Cut(placeholder, ":")
	switch name {
	case "id", "session", "user", "tab", "order", "time", "opened", "system", "sequence", "big", "noise":
		c.out = append(append(append(c.out, '<'), name...), '>')
	case "type":
		c.out = append(c.out, c.typ...)
	case "payload":
		c.expand(c.typ)
	case "item":
		c.out = strconv.AppendInt(c.out, int64(c.item), 10)
	case "uuid":
		c.out = appendID(c.out, 0, uint64(c.below(1<<48)), c.below(1<<40))
	case "int", "cents", "micro", "list":
		c.number(name, arguments)
	default:
		c.expand(name)
	}
}

// number writes a random integer in [a, b] for <int:a:b>, that many hundredths for
// <cents:a:b> or millionths for <micro:a:b>, or that many items of a rule for
// <list:a:b:rule>.
func (c *compiler) number(name, arguments string) {
	from, rest, _ := strings.Cut(arguments, ":")
	to, rule, _ := strings.Cut(rest, ":")
	low, errLow := strconv.Atoi(from)
	high, errHigh := strconv.Atoi(to)
	if errLow != nil || errHigh != nil || high < low {
		panic("exportsim: no range in placeholder " + name + ":" + arguments)
	}
	n := low + c.below(high-low+1)
	switch name {
	case "int":
		c.out = strconv.AppendInt(c.out, int64(n), 10)
	case "cents":
		c.out = strconv.AppendFloat(c.out, float64(n)/100, 'f', 2, 64)
	case "micro":
		c.out = strconv.AppendFloat(c.out, float64(n)/1e6, 'f', 6, 64)
	case "list":
		c.list(n, rule)
	}
}

func (c *compiler) list(n int, rule string) {
	outer := c.item
	for c.item = 0; c.item < n; c.item++ {
		if c.item > 0 {
			c.out = append(c.out, ',')
		}
		c.expand(rule)
	}
	c.item = outer
}
