//go:build browser

package ui_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// click clicks like a mouse, on the topmost element. Content that loads above an element moves
// it, so click waits until the element has kept its place for two frames, and tries again if
// another element got the click.
func (p *tab) click(selector string) {
	p.Helper()
	for try := 0; ; try++ {
		at := p.aim(selector)
		p.do(chromedp.MouseClickXY(at[0], at[1]))
		if read[bool](p, `window.clicked.hit`) {
			return
		}
		if try == 20 {
			p.Fatalf("%d clicks at %s all hit something else, the last one %s", try+1, selector,
				read[string](p, `window.clicked.other`))
		}
	}
}

// aim waits until an element rests and returns its middle. The first click after that
// goes into window.clicked, and reaches the page only if it hits the element.
func (p *tab) aim(selector string) (at []float64) {
	p.Helper()
	steady := fmt.Sprintf(`new Promise((done) => {
		window.clicked?.forget();
		const find = () => {
			const e = document.querySelector(%q);
			return e?.checkVisibility() && !e.disabled ? e : null;
		};
		const middle = (e) => {
			const box = e.getBoundingClientRect();
			return [box.x + box.width / 2, box.y + box.height / 2];
		};
		find()?.scrollIntoView({block: 'center'});
		const before = find() && middle(find());
		requestAnimationFrame(() => requestAnimationFrame(() => {
			const e = find();
			const at = e && middle(e);
			if (String(at) !== String(before) || !e?.contains(document.elementFromPoint(...at))) return done([]);
			const clicked = window.clicked = {hit: false, other: 'nothing'};
			const types = ['mousedown', 'mouseup', 'click'];
			const judge = (event) => {
				clicked.hit = Boolean(find()?.contains(event.target));
				clicked.other = event.target.outerHTML?.slice(0, 200);
				if (event.type === 'click') clicked.forget();
				if (clicked.hit) return;
				event.preventDefault();
				event.stopImmediatePropagation();
			};
			clicked.forget = () => types.forEach((type) => removeEventListener(type, judge, true));
			types.forEach((type) => addEventListener(type, judge, true));
			return done(at);
		}));
	})`, selector)
	p.until(selector+" to rest", func() bool {
		var err error
		at, err = chromedp.Run(p.ctx, chromedp.Evaluate[[]float64](steady, chromedp.EvalAwaitPromise))
		if err != nil {
			p.Fatal(err)
		}
		return len(at) == 2
	})
	return at
}

// If the target moves under the mouse and another element gets the click, the click is repeated.
func TestClickAimsAgain(t *testing.T) {
	p := open(t, newFakeBridge(t, running("events")), 1280)
	p.sees("#state-name", "Running")
	read[bool](p, `(() => {
		const block = document.createElement('div');
		document.getElementById('state').before(block);
		document.getElementById('move').addEventListener('pointerdown', () => { block.style.height = '90px'; }, {once: true});
		return true;
	})()`)
	p.click("#move")
	p.sees("#move-title", "Move the cursor")
}
