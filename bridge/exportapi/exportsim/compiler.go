package exportsim

import (
	"strconv"
	"strings"
)

// compiler expands the grammar into templates, with a random choice wherever a
// rule has alternatives. It panics on a mistake in the grammar.
type compiler struct {
	grammar []map[string][]string // searched in this order
	state   uint64                // of the random sequence
	typ     string                // <type>
	item    int                   // <item>: place in the innermost list
	out     []byte                // the template in work
}

func newCompiler(c Config) *compiler {
	return &compiler{grammar: grammarOf(c.Schema), state: mix(c.Seed ^ mix(saltGrammar))}
}

// compileEvents makes templates of every event type of the schema: each type
// at least once, the rest by weight.
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

func (p *compiler) compile(rule string) template {
	p.out = p.out[:0]
	p.expand(rule)
	return template{parts: split(string(p.out))}
}

// below returns a random number in [0, n).
func (p *compiler) below(n int) int {
	p.state += golden
	return int(mix(p.state) >> 1 % uint64(n))
}

// expand writes one alternative of a rule.
func (p *compiler) expand(rule string) {
	for _, layer := range p.grammar {
		if alternatives, ok := layer[rule]; ok {
			p.write(alternatives[p.below(len(alternatives))])
			return
		}
	}
	panic("exportsim: the grammar has no rule " + rule)
}

// write copies text and replaces each <name> or <name:argument:...> in it.
func (p *compiler) write(text string) {
	for n, part := range split(text) {
		if n%2 == 0 {
			p.out = append(p.out, part...)
		} else if part != "" {
			p.fill(part)
		}
	}
}

func (p *compiler) fill(placeholder string) {
	name, arguments, _ := strings.Cut(placeholder, ":")
	switch name {
	case "id", "session", "user", "tab", "order", "time", "opened", "system", "sequence", "big", "noise":
		p.out = append(append(append(p.out, '<'), name...), '>')
	case "type":
		p.out = append(p.out, p.typ...)
	case "payload":
		p.expand(p.typ)
	case "item":
		p.out = strconv.AppendInt(p.out, int64(p.item), 10)
	case "uuid":
		p.out = appendID(p.out, 0, uint64(p.below(1<<48)), p.below(1<<40))
	case "int", "cents", "micro", "list":
		p.number(name, arguments)
	default:
		p.expand(name)
	}
}

// number writes <int:a:b>, a random integer in [a, b], the same as hundredths
// (<cents:a:b>) or millionths (<micro:a:b>), or <list:a:b:rule>: so many items.
func (p *compiler) number(name, arguments string) {
	from, rest, _ := strings.Cut(arguments, ":")
	to, rule, _ := strings.Cut(rest, ":")
	low, errLow := strconv.Atoi(from)
	high, errHigh := strconv.Atoi(to)
	if errLow != nil || errHigh != nil || high < low {
		panic("exportsim: no range in placeholder " + name + ":" + arguments)
	}
	n := low + p.below(high-low+1)
	switch name {
	case "int":
		p.out = strconv.AppendInt(p.out, int64(n), 10)
	case "cents":
		p.out = strconv.AppendFloat(p.out, float64(n)/100, 'f', 2, 64)
	case "micro":
		p.out = strconv.AppendFloat(p.out, float64(n)/1e6, 'f', 6, 64)
	case "list":
		p.list(n, rule)
	}
}

func (p *compiler) list(n int, rule string) {
	outer := p.item
	for p.item = 0; p.item < n; p.item++ {
		if p.item > 0 {
			p.out = append(p.out, ',')
		}
		p.expand(rule)
	}
	p.item = outer
}
