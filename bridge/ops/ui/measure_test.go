//go:build browser

package ui_test

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// rules lists violations of WCAG 2.2 on the page: landmarks and names, targets of 24 pixels,
// and a contrast of 4.5, or 3 for large letters.
const rules = `(() => {
	const wrong = [];
	const seen = (e) => e.checkVisibility({visibilityProperty: true}) && e.getClientRects().length > 0;
	const name = (e) => e.tagName + (e.id ? '#' + e.id : '') + ' ' + e.textContent.trim().slice(0, 40);
	const all = (selector, root = document) => [...root.querySelectorAll(selector)];
	const within = document.querySelector('dialog[open]') ?? document.body;

	const ids = all('[id]').map((e) => e.id);
	for (const id of ids.filter((id, i) => ids.indexOf(id) !== i)) wrong.push('two elements are #' + id);
	for (const attribute of ['aria-labelledby', 'aria-describedby', 'for'])
		for (const e of all('[' + attribute + ']'))
			for (const id of e.getAttribute(attribute).split(' '))
				if (!ids.includes(id)) wrong.push(name(e) + ': ' + attribute + ' refers to no #' + id);
	if (!document.documentElement.lang || !document.title) wrong.push('no language or title');
	for (const one of ['main', 'body > header', 'footer:not(main *)'])
		if (all(one).filter(seen).length !== 1) wrong.push(all(one).length + ' elements are ' + one);
	for (const e of all('nav, section, [role=region], dialog, [role=img]'))
		if (!e.ariaLabel && !e.hasAttribute('aria-labelledby')) wrong.push('no name: ' + name(e));
	const landmarks = all('nav, section, [role=region]').filter(seen).map((e) => (e.ariaLabel ?? document.getElementById(e.getAttribute('aria-labelledby'))?.textContent ?? '').trim());
	for (const label of landmarks.filter((n, i) => landmarks.indexOf(n) !== i)) wrong.push('two landmarks are called ' + label);
	const levels = all('h1, h2, h3', document.body).filter((e) => !e.closest('dialog') && seen(e)).map((e) => Number(e.tagName[1]));
	if (levels.filter((n) => n === 1).length !== 1 || levels.some((n, i) => n > (levels[i - 1] ?? 0) + 1)) wrong.push('headings are ' + levels);
	for (const e of all('body > *').filter(seen))
		if (!['HEADER', 'MAIN', 'FOOTER', 'DIALOG', 'SCRIPT'].includes(e.tagName) && !e.matches('.skip, [role=alert], [role=status]')) wrong.push('outside of the landmarks: ' + name(e));
	for (const e of all('th')) if (!e.textContent.trim()) wrong.push('an empty table heading');

	for (const e of all('a, button, input, select, [tabindex="0"]', within).filter(seen)) {
		const label = e.ariaLabel || e.innerText || [...(e.labels ?? [])].map((l) => l.innerText).join('') || e.title;
		if (!label?.trim()) wrong.push('no name: ' + e.outerHTML.slice(0, 80));
		if (e.matches('.skip')) continue;
		const target = (e.matches('[type=radio], [type=checkbox]') && e.closest('label')) || e;
		const box = target.getBoundingClientRect();
		if (Math.min(box.width, box.height) < 23.9) wrong.push('target of ' + Math.round(box.width) + ' x ' + Math.round(box.height) + ': ' + name(e));
	}

	const parse = (text) => {
		const n = text.match(/[\d.]+/g).map(Number);
		return {r: n[0], g: n[1], b: n[2], a: n[3] ?? 1};
	};
	const over = (top, under) => ({r: top.r * top.a + under.r * (1 - top.a), g: top.g * top.a + under.g * (1 - top.a), b: top.b * top.a + under.b * (1 - top.a), a: 1});
	const light = ({r, g, b}) => [[r, .2126], [g, .7152], [b, .0722]].reduce((sum, [c, share]) => sum + share * (c / 255 <= .04045 ? c / 255 / 12.92 : ((c / 255 + .055) / 1.055) ** 2.4), 0);
	const known = new Map([[null, {back: {r: 255, g: 255, b: 255, a: 1}, opacity: 1}]]); // by element
	const ground = (e) => {
		if (!known.has(e)) {
			const style = getComputedStyle(e);
			const under = ground(e.parentElement);
			known.set(e, {style, back: over(parse(style.backgroundColor), under.back), opacity: Number(style.opacity) * under.opacity});
		}
		return known.get(e);
	};
	const walker = document.createTreeWalker(within, NodeFilter.SHOW_TEXT);
	let texts = 0;
	for (let node = walker.nextNode(); node; node = walker.nextNode()) {
		const e = node.parentElement;
		if (!node.data.trim() || !seen(e) || e.closest('[disabled], .hidden, .skip, option') || e.querySelector(':disabled')) continue;
		texts++;
		const {style, back, opacity} = ground(e);
		const text = parse(style.color);
		const [a, b] = [light(over({...text, a: text.a * opacity}, back)), light(back)];
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		const size = parseFloat(style.fontSize);
		const need = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
		if (ratio < need) wrong.push('contrast ' + ratio.toFixed(2) + ': ' + name(e));
	}
	if (texts < 5) wrong.push('only ' + texts + ' texts were measured');
	return [...new Set(wrong)];
})()`

// obeys fails if the page violates a rule, in light or dark.
func (p *tab) obeys() {
	p.Helper()
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		for _, wrong := range read[[]string](p, rules) {
			p.Errorf("%s: %s", scheme, wrong)
		}
	}
}

// The rules find each kind of violation.
func TestRulesFind(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.history = entries(3)
	p := open(t, f, 1280)
	p.sees("#history-rows", "3.88411")
	if wrong := read[[]string](p, rules); len(wrong) > 0 {
		t.Fatalf("before any change: %q", wrong)
	}
	for _, tc := range [][2]string{
		{`document.getElementById('pause').style.color = 'rgb(140, 140, 140)'`, "contrast"},
		{`document.getElementById('help').style.cssText = 'width: 16px; height: 16px'`, "target of"},
		{`document.getElementById('help').replaceChildren(),` +
			` document.getElementById('help').title = document.getElementById('help').ariaLabel = ''`, "no name"},
		{`document.querySelector('[aria-label=History]').ariaLabel = 'Servers and processes'`, "two landmarks"},
		{`document.querySelector('footer').style.display = 'none'`, "footer"},
		{`document.getElementById('main').id = 'help'`, "two elements"},
	} {
		change, want := tc[0], tc[1]
		read[any](p, change)
		if got := read[bool](p, rules+`.some((wrong) => wrong.includes("`+want+`"))`); !got {
			t.Errorf("after %s the rules do not find %q", change, want)
		}
	}
}

// The table's buttons are one stop of the Tab key, and the arrow keys go from row
// to row.
func TestRoving(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.history = entries(60)
	p := open(t, f, 1280)
	p.sees("#history-rows", "3.88411")
	focus := func() string {
		return read[string](p, `document.activeElement.dataset.key ?? document.activeElement.id`)
	}
	read[any](p, `document.querySelector('[aria-label=History]').focus()`)
	for _, step := range []struct{ key, want string }{
		{kb.Tab, "3.88411"},
		{kb.ArrowDown, "3.88410"},
		{kb.ArrowDown, "3.88409"},
		{kb.ArrowUp, "3.88410"},
		{kb.PageDown, "3.88400"},
		{kb.End, "3.88353"},
		{kb.Home, "3.88411"},
		{kb.ArrowUp, "3.88411"},
		{kb.ArrowDown, "3.88410"},
		{kb.Tab, "samples-type"},
	} {
		p.press(step.key)
		if got := focus(); got != step.want {
			t.Fatalf("after %q the focus is on %q, want %q", step.key, got, step.want)
		}
	}
	if n := read[int](p, `document.querySelectorAll('#history-rows [tabindex="0"]').length`); n != 1 {
		t.Errorf("the Tab key stops at %d buttons of the table, want 1", n)
	}
}
