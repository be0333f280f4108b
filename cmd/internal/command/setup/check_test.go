package setup

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/cmd/internal/cli"
)

// TestCheckEndsAtTimeout: sections without an answer all end at --timeout.
func TestCheckEndsAtTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context) []finding {
			<-ctx.Done()
			return []finding{fail(ctx.Err().Error())}
		}
		var out strings.Builder
		a := &cli.App{Stdio: cli.Stdio{Stdout: &out}}
		began := time.Now()
		err := runCheck(t.Context(), a, []checkSection{{"api", silent}, {"kafka", silent}}, false, time.Minute)
		if took := time.Since(began); took != time.Minute || err == nil {
			t.Errorf("after %s: %v", took, err)
		}
		if text := out.String(); strings.Count(text, context.DeadlineExceeded.Error()) != 2 {
			t.Errorf("the check printed\n%s", text)
		}
	})
}
