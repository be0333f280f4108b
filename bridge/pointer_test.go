package bridge

import "testing"

func TestPointerLike(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"userId": "/userId", "$.actor.id": "/actor/id", "actor.id": "/actor/id",
		"actor/id": "/actor/id", "": "/userId"} {
		if got := PointerLike(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
