package bridge_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
)

func TestProblems(t *testing.T) {
	t.Parallel()
	var p bridge.Problems
	p.Check(true, "X", "is right")
	p.Add(nil)
	if err := p.Err(); err != nil {
		t.Errorf("nothing is wrong, and the error is %v", err)
	}
	p.Check(false, "EXPORT_TIMEOUT", "must be above %d", 0)
	p.Check(false, "", "stream has no name")
	var all bridge.Problems
	all.Add(fmt.Errorf("export: %w", p.Err()))
	all.Add(bridge.Problemf("X", "is wrong"))
	all.Add(errors.New("other"))
	want := bridge.Problems{
		{Variable: "EXPORT_TIMEOUT", Message: "EXPORT_TIMEOUT must be above 0"},
		{Message: "stream has no name"},
		{Variable: "X", Message: "X is wrong"},
		{Message: "other"},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if first, ok := errors.AsType[bridge.Problem](all.Err()); !ok || first != want[0] {
		t.Errorf("the first is %+v", first)
	}
	if got := all.Error(); got != "EXPORT_TIMEOUT must be above 0\nstream has no name\nX is wrong\nother" {
		t.Errorf("error %q", got)
	}
	all = nil
	all.OneOf("KAFKA_HUE", "", "", "red", "blue")
	all.OneOf("KAFKA_HUE", "green", "", "red", "blue")
	if got, want := all.Error(), `KAFKA_HUE "green" is not one of: red, blue`; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
}
