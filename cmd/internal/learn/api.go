package learn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/config"
)

// mostRequests bounds how often an API is asked.
const mostRequests = 16

// errTooMany is the error of a request above mostRequests.
var errTooMany = &UnfollowableError{
	fmt.Sprintf("no next page was found within %d requests", mostRequests),
	"look in the documentation for the parameter of the cursor, and take a curl command that has it",
}

// wrongParam reports whether an error may be that of a wrong parameter.
func wrongParam(err error) bool {
	f, ok := errors.AsType[*bridge.Fault](err)
	return ok && f.Class != bridge.Throttled && f.Reason != bridge.ReasonAuth && f.Class != bridge.Transient ||
		errors.Is(err, errNoAdvance)
}

// reach matches the settings of how a host is reached, which no profile has.
var reach = regexp.MustCompile(`^EXPORT_(TLS_|PROXY=.|INSECURE_HTTP=|ALLOW_LINK_LOCAL=)`)

// api sends requests as a profile says, and counts them.
type api struct {
	environ  []string // settings that no profile has
	anyOrder bool     // items may come newest first, and lie outside of a range
	asked    int
}

func newAPI(environ []string, c credentials) *api {
	a := &api{environ: []string{"EXPORT_TIMEOUT=20s", "EXPORT_MAX_RESPONSE_BYTES=8MiB", "EXPORT_PROXY=environment"}}
	for _, entry := range environ {
		if reach.MatchString(entry) {
			a.environ = append(a.environ, entry)
		}
	}
	a.environ = append(a.environ, c.environ()...)
	return a
}

// outline requests a page whose items no setting describes yet.
func (a *api) outline(ctx context.Context, p profile, at bridge.Position) (*exportapi.Outline, error) {
	return ask(ctx, a, p, at, (*exportapi.Client).Outline)
}

// sample requests a page and reads its items.
func (a *api) sample(ctx context.Context, p profile, at bridge.Position) (exportapi.Sample, error) {
	return ask(ctx, a, p, at, func(c *exportapi.Client, ctx context.Context, at bridge.Position) (exportapi.Sample, error) {
		return c.Sample(ctx, at, math.MaxInt)
	})
}

// request is a method of the client.
type request[T any] func(*exportapi.Client, context.Context, bridge.Position) (T, error)

// ask sends one request with a client of its own. Outside of a window, a first page begins at
// EXPORT_START.
func ask[T any](ctx context.Context, a *api, p profile, at bridge.Position, send request[T]) (answer T, err error) {
	s, err := config.Load(config.Sources{Environ: slices.Concat(a.environ, p.environ())}, config.UsesExport)
	if err != nil {
		return answer, err
	}
	st := &s.Streams[0]
	if at.Cursor == "" && !at.Window {
		at.Start = st.Engine.Origin.Start
	}
	export := st.Export
	export.AnyOrder, export.KeepItems = export.AnyOrder || a.anyOrder, true
	client, err := exportapi.New(export)
	if err != nil {
		return answer, err
	}
	defer client.Close()
	if a.asked >= mostRequests {
		return answer, errTooMany
	}
	a.asked++
	return send(client, ctx, at)
}
