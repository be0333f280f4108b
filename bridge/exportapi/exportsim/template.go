package exportsim

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// template is an item with its varying parts left open. All of them have a
// fixed width, so that rendering is one copy and a few digits: about 0.3 µs.
type template struct {
	body  []byte
	slots []slot
	kind  int // event type, by its place in eventTypes
}

type slot struct {
	at   int
	what part
}

// part is a varying part of an item.
type part uint8

const (
	partID part = iota + 1
	partSession
	partUser
	partTab
	partOrder
	partTime
	partOpened
	partSystem
	partSequence
	partBig
	partNoise
)

const (
	millisLen   = 13
	sequenceLen = 12
	bigLen      = 19
	noiseLen    = 16
)

// parts are the placeholders that become slots, and their widths.
var parts = map[string]struct {
	what  part
	width int
}{
	"id":       {partID, idLen},
	"session":  {partSession, idLen},
	"user":     {partUser, idLen},
	"tab":      {partTab, idLen},
	"order":    {partOrder, idLen},
	"time":     {partTime, millisLen},
	"opened":   {partOpened, millisLen},
	"system":   {partSystem, millisLen},
	"sequence": {partSequence, sequenceLen},
	"big":      {partBig, bigLen},
	"noise":    {partNoise, noiseLen},
}

// values are what the slots of one item are filled with.
type values struct {
	kind                 kind
	index, session, user int
	time, opened, system int64
	noise                uint64
}

func (w *world) render(to []byte, t *template, v values) []byte {
	start := len(to)
	to = append(to, t.body...)
	item := to[start:]
	for _, s := range t.slots {
		switch at := item[s.at:]; s.what {
		case partID:
			putID(at[:idLen], v.kind, w.seed, v.index)
		case partSession:
			putID(at[:idLen], kindSession, w.seed, v.session)
		case partUser:
			putID(at[:idLen], kindUser, w.seed, v.user)
		case partTab:
			putID(at[:idLen], kindTab, w.seed, v.session)
		case partOrder:
			putID(at[:idLen], kindOrder, w.seed, v.index)
		case partTime:
			putDecimal(at[:millisLen], uint64(v.time))
		case partOpened:
			putDecimal(at[:millisLen], uint64(v.opened))
		case partSystem:
			putDecimal(at[:millisLen], uint64(v.system))
		case partSequence:
			putDecimal(at[:sequenceLen], uint64(v.index))
		case partBig:
			// From 10^18 on: beyond 2^53, within 64 bits.
			putDecimal(at[:bigLen], 1e18+v.noise%8e18)
		case partNoise:
			putHex(at[:noiseLen], v.noise)
		}
	}
	return to
}

// compiler expands the grammar into templates, with a random choice wherever a
// rule has alternatives. It panics on a mistake in the grammar.
type compiler struct {
	grammar []map[string][]string // searched in this order
	state   uint64                // of the random sequence
	typ     string                // <type>
	item    int                   // <item>: place in the innermost list
	out     template              // memory for the one in work
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
	p.out = template{body: p.out.body[:0], slots: p.out.slots[:0]}
	p.expand(rule)
	return template{body: bytes.Clone(p.out.body), slots: slices.Clone(p.out.slots)}
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
	for text != "" {
		literal, rest, found := strings.Cut(text, "<")
		p.out.body = append(p.out.body, literal...)
		if !found {
			return
		}
		var placeholder string
		placeholder, text, _ = strings.Cut(rest, ">")
		p.fill(placeholder)
	}
}

func (p *compiler) fill(placeholder string) {
	if slotted, ok := parts[placeholder]; ok {
		p.out.slots = append(p.out.slots, slot{len(p.out.body), slotted.what})
		p.out.body = append(p.out.body, strings.Repeat("0", slotted.width)...)
		return
	}
	name, arguments, _ := strings.Cut(placeholder, ":")
	switch name {
	case "type":
		p.out.body = append(p.out.body, p.typ...)
	case "payload":
		p.expand(p.typ)
	case "item":
		p.out.body = strconv.AppendInt(p.out.body, int64(p.item), 10)
	case "uuid":
		p.out.body = appendID(p.out.body, 0, uint64(p.below(1<<48)), p.below(1<<40))
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
		p.out.body = strconv.AppendInt(p.out.body, int64(n), 10)
	case "cents":
		p.out.body = strconv.AppendFloat(p.out.body, float64(n)/100, 'f', 2, 64)
	case "micro":
		p.out.body = strconv.AppendFloat(p.out.body, float64(n)/1e6, 'f', 6, 64)
	case "list":
		p.list(n, rule)
	}
}

func (p *compiler) list(n int, rule string) {
	outer := p.item
	for p.item = 0; p.item < n; p.item++ {
		if p.item > 0 {
			p.out.body = append(p.out.body, ',')
		}
		p.expand(rule)
	}
	p.item = outer
}
