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

// mostRequests is the maximum number of requests to an API.
const mostRequests = 16

// errTooMany is the error of a request beyond mostRequests.
var errTooMany = &UnfollowableError{
	fmt.Sprintf("no next page was found within %d requests", mostRequests),
	"look in the documentation for the parameter of the cursor, and take a curl command that has it",
}

// wrongParam reports whether a wrong parameter may be the cause of an error.
func wrongParam(err error) bool {
	f := bridge.FaultOf(err) // Transient for any other error
	return f.Class != bridge.Throttled && f.Reason != bridge.ReasonAuth && f.Class != bridge.Transient ||
		errors.Is(err, errNoAdvance) || misfit(err)
}

// misfit reports whether the tried settings do not go with the others, such as a name that another
// parameter has. Nothing was requested then.
func misfit(err error) bool {
	_, is := errors.AsType[config.Problems](err)
	return is
}

// connection matches the settings of the connection to a host, which no profile has.
var connection = regexp.MustCompile(`^EXPORT_(TLS_|PROXY=.|INSECURE_HTTP=|ALLOW_LINK_LOCAL=)`)

// api sends requests with the settings of a profile, and counts them.
type api struct {
	environ  []string // settings that no profile has
	anyOrder bool     // items may come newest first, and may be outside the requested range
	asked    int
}

func newAPI(environ []string, c credentials) *api {
	own := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return !connection.MatchString(entry) })
	limits := []string{"EXPORT_TIMEOUT=20s", "EXPORT_MAX_RESPONSE_BYTES=8MiB", "EXPORT_PROXY=environment"}
	return &api{environ: slices.Concat(limits, own, c.environ())}
}

// outline requests a page and finds its lists. It needs no settings for the items.
func (a *api) outline(ctx context.Context, p profile, at bridge.Position) (*exportapi.Outline, error) {
	client, at, err := a.client(p, at)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return exportapi.Inspector{Client: client}.Outline(ctx, at)
}

// sample requests a page and reads its items by the settings.
func (a *api) sample(ctx context.Context, p profile, at bridge.Position) (exportapi.Sample, error) {
	client, at, err := a.client(p, at)
	if err != nil {
		return exportapi.Sample{}, err
	}
	defer client.Close()
	return exportapi.Inspector{Client: client}.Sample(ctx, at, math.MaxInt)
}

// client returns a client for one request, and counts the request. Outside a window, the first page
// begins at EXPORT_START.
func (a *api) client(p profile, at bridge.Position) (*exportapi.Client, bridge.Position, error) {
	s, err := config.Load(config.Sources{Environ: slices.Concat(a.environ, p.environ())}, config.UsesExport)
	if err != nil {
		return nil, at, err
	}
	st := &s.Streams[0]
	if at.Cursor == "" && !at.Window {
		at.Start = st.Engine.Origin.Start
	}
	export := st.Export
	export.AnyOrder, export.KeepItems = export.AnyOrder || a.anyOrder, true
	client, err := exportapi.New(export)
	switch {
	case err != nil:
	case a.asked >= mostRequests:
		client.Close()
		err = errTooMany
	default:
		a.asked++
	}
	return client, at, err
}
