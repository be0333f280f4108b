package learn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/config"
)

// mostRequests bounds how often an API is asked.
const mostRequests = 16

// An UnfollowableError says why an API cannot be followed by a cursor.
type UnfollowableError struct{ Why, Hint string }

func (e *UnfollowableError) Error() string { return e.Why }

// A ThrottledError is the answer of an API that asks to wait.
type ThrottledError struct{ RetryAfter time.Duration }

func (e *ThrottledError) Error() string {
	return fmt.Sprintf("the API asked to wait for %s; nothing was learned", e.RetryAfter.Round(time.Second))
}

// finding is a setting with what it rests on.
type finding struct {
	name, value string
	why         string
	question    string // what was not proven
	example     string // of a setting that the profile cannot have
}

// reach matches the settings of how a host is reached, which no profile has.
var reach = regexp.MustCompile(`^EXPORT_(TLS_|PROXY=.|INSECURE_HTTP=|ALLOW_LINK_LOCAL=)`)

// learner holds what is known so far.
type learner struct {
	environ          []string // settings that no profile has
	findings         []*finding
	secret, headers  string
	half             string // the user or the password, where the other one is empty
	static           []param
	cursors          []string // parameters of the request that may be that of the cursor
	numbered         string   // the parameter with the number of a page
	moments          []timed  // of the parameters of the request
	end              string   // the parameter that may be the end of a range
	endAt            int64    // its time, in milliseconds since the epoch
	outside          bool     // items outside of a range are kept, to prove its bounds
	ended            *ended   // the first cursor that led to an empty page
	smaller, largest int      // sizes of a page: one that is proven, 0 for none, and the last one to set
	size             int      // of the pages asked for; 0 without a parameter
	newest           bool     // windows are learned, for a list that comes newest first
	whole            bridge.Position
	required         bool               // a request without an end is refused
	unbounded        *UnfollowableError // why no windows are without a cursor, if they lack a bound

	asked   int
	outline *exportapi.Outline
	list    string // where the items are
	items   []map[string]any
	first   exportapi.Sample
	second  exportapi.Sample
	last    exportapi.Sample // the third page, if one was read
}

// Lesson is what was learned.
type Lesson struct {
	Profile   string
	recording func() (*Recording, error)
}

// Recording returns the pages that the profile was learned from, without what they say. Its
// error is that of a page that repeats the key.
func (l *Lesson) Recording() (*Recording, error) { return l.recording() }

// Learn returns the settings for the API that a request lists, as a profile. It sends at
// most 16 requests, to the request's host alone. Of the environment it takes how
// that host is reached. Its error is an UnfollowableError, a ThrottledError, a
// *bridge.Fault or one about the request.
func Learn(ctx context.Context, r *Request, environ []string) (*Lesson, error) {
	l := &learner{environ: []string{"EXPORT_TIMEOUT=20s", "EXPORT_MAX_RESPONSE_BYTES=8MiB", "EXPORT_PROXY=environment"}}
	for _, entry := range environ {
		if reach.MatchString(entry) {
			l.environ = append(l.environ, entry)
		}
	}
	if err := l.describe(r); err != nil {
		return nil, err
	}
	if err := l.hide(l.learn(ctx)); err != nil {
		if f, ok := errors.AsType[*bridge.Fault](err); ok && f.Class == bridge.Throttled {
			return nil, &ThrottledError{f.RetryAfter}
		}
		return nil, err
	}
	return &Lesson{l.hidden(l.profile()), l.record}, nil
}

// hidden returns a text without the half of Basic authentication that is the key: the client
// knows it in base64 only.
func (l *learner) hidden(text string) string {
	if len(l.half) < 8 { // it is in ordinary text by chance
		return text
	}
	return strings.ReplaceAll(text, l.half, "***")
}

// hide hides the key in an error that quotes the API.
func (l *learner) hide(err error) error {
	if err == nil || l.hidden(err.Error()) == err.Error() {
		return err
	}
	if f, ok := errors.AsType[*bridge.Fault](err); ok {
		f.Err = errors.New(l.hidden(f.Error()))
		return f
	}
	if no, ok := errors.AsType[*UnfollowableError](err); ok {
		return &UnfollowableError{l.hidden(no.Why), no.Hint}
	}
	return errors.New(l.hidden(err.Error()))
}

func (l *learner) learn(ctx context.Context) error {
	for _, name := range []string{
		"EXPORT_METADATA_FIELD", "EXPORT_ITEM_INGESTED", "EXPORT_ITEM_TYPE", "EXPORT_ITEM_ID", "EXPORT_ITEM_SUBJECT",
		"KAFKA_KEY",
	} {
		l.set(name, "none", "")
	}
	l.set("KAFKA_CE_TYPE_PREFIX", "event", "")
	required, err := l.lookFirst(ctx)
	l.required = required != ""
	if err != nil {
		return err
	}
	// The first page may be the only one.
	if shorter := len(l.items) / 3; len(l.outline.Next) == 0 && l.sized() && shorter > 0 {
		l.set("EXPORT_PAGE_SIZE", strconv.Itoa(shorter), "")
		l.set("EXPORT_MAX_PAGE_SIZE", strconv.Itoa(max(l.size, shorter)), "")
		if err := l.look(ctx); err != nil {
			return err
		}
	}
	l.readItems()
	if why := cmp.Or(l.forwards(), required); why != "" {
		if err := l.backwards(ctx, why); err != nil {
			return err
		}
	}
	err = l.findNext(ctx)
	if _, none := errors.AsType[*UnfollowableError](err); none && l.newest {
		err = l.number(ctx)
	}
	if err != nil {
		return err
	}
	if l.ended != nil {
		l.setSize(l.largest)
	} else if err := l.findSize(ctx); err != nil {
		return err
	}
	if l.newest {
		return nil
	}
	return l.findRange(ctx)
}

// lookFirst requests the first page. Where the API requires the end that the curl command
// has, it says so: no cursor without an end leads on.
func (l *learner) lookFirst(ctx context.Context) (required string, err error) {
	err = l.look(ctx)
	start := l.finding("EXPORT_START_PARAM").value
	f, rejected := errors.AsType[*bridge.Fault](err)
	if !rejected || !tryOther(f) || l.end == "" || start == none {
		return "", err
	}
	l.set("EXPORT_END_PARAM", l.end, "")
	st, _, err := l.client()
	if err != nil {
		return "", err
	}
	l.newest, l.whole = true, bridge.Position{Start: st.Engine.Origin.Start, End: l.endAt, Window: true}
	return refusesOpen(l.end), l.look(ctx)
}

// look requests the first page, and finds its items.
func (l *learner) look(ctx context.Context) (err error) {
	if l.outline, err = l.outlined(ctx); err != nil {
		return err
	}
	if len(l.outline.Lists) == 0 {
		return errors.New("the page has no list of objects: ask for one with items, and check what the URL returns")
	}
	l.list = l.outline.Lists[0]
	l.items = l.outline.Items(l.list)
	if l.size == 0 {
		l.set("EXPORT_PAGE_SIZE", strconv.Itoa(len(l.items)), "")
		l.set("EXPORT_MAX_PAGE_SIZE", strconv.Itoa(len(l.items)), "")
	}
	l.set("EXPORT_ITEMS_FIELD", l.list, fmt.Sprintf("a list of %d objects", len(l.items)))
	l.anyCursor()
	if others := l.outline.Lists[1:]; len(others) > 0 {
		l.ask("EXPORT_ITEMS_FIELD", "the longest list was taken; others are at "+strings.Join(others, ", "))
	}
	return nil
}

// outlined requests the first page as far as the settings say how.
func (l *learner) outlined(ctx context.Context) (*exportapi.Outline, error) {
	l.asked++
	st, client, err := l.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return exportapi.Inspector{Client: client}.Outline(ctx, l.position(st, ""))
}

// sized reports whether the request had a parameter of the page size.
func (l *learner) sized() bool { return l.size > 0 }

// client returns a client with the settings so far.
func (l *learner) client() (*config.Stream, *exportapi.Client, error) {
	st, err := l.stream()
	if err != nil {
		return nil, nil, err
	}
	export := st.Export
	export.AnyOrder, export.KeepItems = export.AnyOrder || l.newest || l.outside, true
	client, err := exportapi.New(export)
	return st, client, err
}

// stream returns the settings so far.
func (l *learner) stream() (*config.Stream, error) {
	environ := slices.Clone(l.environ)
	for _, f := range l.findings {
		if f.example == "" {
			environ = append(environ, f.name+"="+f.value)
		}
	}
	if l.secret != "" {
		environ = append(environ, "EXPORT_API_KEY="+l.secret)
	}
	if l.headers != "" {
		environ = append(environ, "EXPORT_HEADERS="+l.headers)
	}
	s, err := config.Load(config.Sources{Environ: environ}, config.UsesExport)
	if err != nil {
		return nil, err
	}
	return &s.Streams[0], nil
}

// sample requests a page with the settings so far, the first one without a cursor.
func (l *learner) sample(ctx context.Context, cursor string) (exportapi.Sample, error) {
	st, err := l.stream()
	if err != nil {
		return exportapi.Sample{}, err
	}
	return l.sampleAt(ctx, l.position(st, cursor))
}

// position is that of a page: the first one without a cursor.
func (l *learner) position(st *config.Stream, cursor string) bridge.Position {
	at := l.whole
	if at.Cursor = cursor; cursor == "" && !l.newest {
		at.Start = st.Engine.Origin.Start
	}
	return at
}

func (l *learner) sampleAt(ctx context.Context, at bridge.Position) (exportapi.Sample, error) {
	st, client, err := l.client()
	if err != nil {
		return exportapi.Sample{}, err
	}
	defer client.Close()
	if l.asked >= mostRequests {
		return exportapi.Sample{}, errTooMany
	}
	l.asked++
	return exportapi.Inspector{Client: client}.Sample(ctx, at, st.Export.PageSize)
}

// finding returns the finding about a setting.
func (l *learner) finding(name string) *finding {
	if i := slices.IndexFunc(l.findings, func(f *finding) bool { return f.name == name }); i >= 0 {
		return l.findings[i]
	}
	f := &finding{name: name}
	l.findings = append(l.findings, f)
	return f
}

// known returns the value of a setting, and whether it was set.
func (l *learner) known(name string) (value string, ok bool) {
	i := slices.IndexFunc(l.findings, func(f *finding) bool { return f.name == name && f.value != "" })
	if i < 0 {
		return "", false
	}
	return l.findings[i].value, true
}

// set sets a setting and what it rests on, if that is said.
func (l *learner) set(name, value, why string) {
	f := l.finding(name)
	if f.value = value; why != "" {
		f.why = why
	}
}

// ask notes what was not proven about a setting, "" for nothing.
func (l *learner) ask(name, question string) { l.finding(name).question = question }

// drop forgets settings.
func (l *learner) drop(names ...string) {
	l.findings = slices.DeleteFunc(l.findings, func(f *finding) bool { return slices.Contains(names, f.name) })
}
