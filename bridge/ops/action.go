package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/bridge/ops/door"
)

const (
	maxBody = 64 << 10
	// actionTimeout bounds an action. It is longer than ackTimeout.
	actionTimeout = 45 * time.Second
	// ackTimeout is how long to wait for the bridge to acknowledge an action:
	// shorter than the time-out of browsers and proxies.
	ackTimeout = 20 * time.Second
)

// sender is who sends an action, and how history and log record him.
type sender struct {
	door.Identity
	address, request string
}

func senderOf(who door.Identity, r *http.Request) sender {
	return sender{who, callerOf(r), shorten(r.Method) + " " + shorten(r.URL.Path)}
}

// String returns http:NAME@ADDRESS, or http:ADDRESS.
func (s sender) String() string {
	if s.Name == "" {
		return "http:" + s.address
	}
	return "http:" + s.Name + "@" + s.address
}

// record writes a record of a sender's request to the audit log.
func (p *Parts) record(who sender, r door.Record) error {
	r.Time, r.Who, r.Auth, r.Address, r.Request = time.Now().UTC(), who.Name, who.By, who.address, who.request
	err := p.Audit.Write(r)
	if err != nil {
		p.Logger.Error("audit log not written", "outcome", r.Outcome, "who", who.String(), "request", who.request,
			"error", err.Error(), "hint", "check HTTP_AUDIT_LOG and its disk; meanwhile actions are refused")
		return errorf(http.StatusServiceUnavailable, "check the log of the process",
			"the audit log cannot be written; nothing was changed")
	}
	return nil
}

// actor executes the action of a body on a stream or a job.
type actor func(ctx context.Context, object string, who sender, body []byte) (any, error)

// objectOf returns the stream or the job in a request's path.
type objectOf func(*http.Request) (string, error)

// action authorizes a request, reads its body and executes it.
func (h *handler) action(object objectOf, act actor) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// An acknowledgement may exceed the usual time-out.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(actionTimeout + writeTimeout))
		ctx, cancel := context.WithTimeout(r.Context(), actionTimeout)
		defer cancel()
		who, err := h.guard.mayAct(r)
		var name string
		var body []byte
		var done any
		if err == nil {
			name, body, err = read(w, r, object)
		}
		if err == nil {
			done, err = act(ctx, name, senderOf(who, r), body)
		}
		if err != nil {
			h.fail(w, r, err)
			return
		}
		reply(w, http.StatusOK, done)
	}
}

// read returns the object and the body of a request.
func read(w http.ResponseWriter, r *http.Request, object objectOf) (name string, body []byte, err error) {
	if name, err = object(r); err != nil {
		return "", nil, err
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return "", nil, errorf(http.StatusUnsupportedMediaType, "Content-Type: application/json", "the body must be JSON")
	}
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		err = errorf(http.StatusRequestEntityTooLarge, "", "the body is larger than %d bytes", maxBody)
	} else if err != nil {
		err = badRequest("send the complete body", "read the body: %w", err)
	}
	return name, body, err
}

func (h *handler) pause(ctx context.Context, stream string, who sender, body []byte) (any, error) {
	var req struct {
		Reason string `json:"reason"`
		For    string `json:"for"`
	}
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	var length time.Duration
	if req.For != "" {
		var err error
		if length, err = bridge.ParseDuration(req.For); err != nil || length < time.Second {
			return nil, badRequest(`"for": "30m"`, "for: %q is not a duration of a second or more", shorten(req.For))
		}
	}
	by := requestOf(who, req.Reason)
	return h.do("pause", stream, who, by, func(c Controller) (control.Done, error) { return c.Pause(ctx, by, length) })
}

func (h *handler) resume(ctx context.Context, stream string, who sender, body []byte) (any, error) {
	var req struct {
		Reason string `json:"reason"`
	}
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	by := requestOf(who, req.Reason)
	return h.do("resume", stream, who, by, func(c Controller) (control.Done, error) { return c.Resume(ctx, by) })
}

func requestOf(who sender, reason string) control.Request {
	return control.Request{Who: who.String(), Reason: reason, Timeout: ackTimeout}
}

// moveRequest is the body of a move.
type moveRequest struct {
	To      moveTarget `json:"to"`
	Reason  string     `json:"reason"`
	Execute bool       `json:"execute"`
	// Confirm repeats the stream's name, BaseEpoch is that of the plan; only with Execute.
	Confirm   string `json:"confirm"`
	BaseEpoch *int64 `json:"base_epoch"`
	// AcceptSource is as in bridge.Command.
	AcceptSource string `json:"accept_source"`
}

func (h *handler) move(ctx context.Context, stream string, who sender, body []byte) (any, error) {
	var req moveRequest
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	to, err := req.To.parse(time.Now())
	if err != nil {
		return nil, err
	}
	if err := checkReason(req.Reason); err != nil {
		return nil, err
	}
	switch {
	case req.AcceptSource != "" && !bridge.IsDigest(req.AcceptSource):
		return nil, badRequest(`"accept_source": "0123abcd", as the error of the blocked stream names it`,
			"accept_source: %q is no source", shorten(req.AcceptSource))
	case !req.Execute:
		c, err := h.controller(stream)
		if err != nil {
			return nil, err
		}
		m, err := c.Plan(ctx, to)
		if err != nil {
			return nil, steered(err)
		}
		return m.Plan, nil
	case req.Confirm != stream:
		return nil, unconfirmed(req.Confirm, stream)
	case req.BaseEpoch == nil:
		return nil, badRequest("use the base_epoch of the plan", "base_epoch is missing: plan the move before executing it")
	}
	kind := bridge.KindReset
	switch to.(type) {
	case control.RewindToEntry, control.RewindToTime, control.RewindPages:
		kind = bridge.KindRewind
	}
	by := requestOf(who, req.Reason)
	by.AcceptSource = req.AcceptSource
	return h.do(string(kind), stream, who, by, func(c Controller) (control.Done, error) {
		m, err := c.Plan(ctx, to)
		if err == nil {
			err = m.CheckEpoch(*req.BaseEpoch)
		}
		if err != nil {
			return control.Done{}, err
		}
		return c.Move(ctx, m, by)
	})
}

// moveTarget is the target of a move: exactly one field is set. In JSON, each has the name
// that control.ParseTarget knows.
type moveTarget struct {
	Entry     string `json:"entry"`
	Datetime  string `json:"datetime"`
	Shift     int64  `json:"shift"`
	EventTime string `json:"event_time"`
	Earliest  bool   `json:"earliest"`
	Current   bool   `json:"current"`
	Latest    bool   `json:"latest"`
}

// targetHints are correct targets.
var targetHints = map[string]string{
	control.TargetEntry: "use an entry of the history", control.TargetShift: `"shift": -5`,
	control.TargetDatetime: timeHint(control.TargetDatetime), control.TargetEventTime: timeHint(control.TargetEventTime),
}

// parse reads the field that is set.
func (t *moveTarget) parse(now time.Time) (control.Target, error) {
	var name, text string
	given := 0
	fields := reflect.ValueOf(*t)
	for i := range fields.NumField() {
		if field := fields.Field(i); !field.IsZero() {
			name, text = fields.Type().Field(i).Tag.Get("json"), shorten(fmt.Sprint(field))
			given++
		}
	}
	if given != 1 {
		return nil, badRequest(`"to": {"shift": -5}`,
			"to: has %d targets, want one of entry, datetime, shift, event_time, earliest, current, latest", given)
	}
	to, err := control.ParseTarget(name, text, now)
	hint := targetHints[name]
	switch {
	case err == nil:
		err = wantAbsolute(text, now)
	case errors.Is(err, bridge.ErrFuture):
		hint = `"latest": true`
	}
	if err != nil {
		return nil, badRequest(hint, "%s: %w", name, err)
	}
	return to, nil
}

// unconfirmed is the error of a confirmation that does not name the stream.
func unconfirmed(confirm, stream string) error {
	return badRequest(fmt.Sprintf(`"confirm": %q`, stream), "confirm: %q is not the name of the stream", shorten(confirm))
}

// do records a change, executes it and logs it with its caller.
func (h *handler) do(
	action, stream string, who sender, by control.Request, change func(Controller) (control.Done, error),
) (any, error) {
	if err := checkReason(by.Reason); err != nil {
		return nil, err
	}
	c, err := h.controller(stream)
	if err != nil {
		return nil, err
	}
	log := h.Logger.With("stream", stream, "action", action, "who", by.Who, "reason", by.Reason)
	entry := door.Record{Outcome: door.Allowed, Action: action, Stream: stream, Reason: by.Reason}
	if err := h.record(who, entry); err != nil {
		return nil, err // an action without its record must not happen
	}
	done, err := change(c)
	h.watched.invalidate(stream) // it may have been applied in spite of an error
	if err != nil {
		log.Warn("action failed", "error", err.Error())
		entry.Outcome, entry.Error = door.Failed, err.Error()
		_ = h.record(who, entry)
		return nil, steered(err)
	}
	a := done.Answer
	log.Info("action done", "by", a.By, "entry", a.Version.String())
	return Done{Applied: a.Applied, By: a.By, Version: a.Version, At: time.UnixMilli(a.At).UTC()}, nil
}

// checkReason checks that the history can store the reason, which is required.
func checkReason(reason string) error {
	const hint = `"reason": "vendor maintenance"`
	if strings.TrimSpace(reason) == "" {
		return badRequest(hint, "reason is empty; it is required for the history")
	}
	if err := bridge.CheckReason(reason); err != nil {
		return badRequest(hint, "%s", err)
	}
	return nil
}

// decode decodes one JSON object without unknown fields.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = errors.New("trailing data after the object")
		}
	}
	if err != nil {
		return badRequest(`{"reason": "vendor maintenance"}`, "invalid body: %s", shorten(explainJSON(err)))
	}
	return nil
}

// explainJSON describes a decoding error in JSON's terms.
func explainJSON(err error) string {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case errors.Is(err, io.EOF):
		return "it is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it ends before the object does"
	case !ok:
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	want := "an object"
	switch wrong.Type.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Int64:
		want = "a whole number"
	case reflect.Float64:
		want = "a number"
	case reflect.Slice:
		want = "a list"
	}
	if wrong.Field == "" {
		return fmt.Sprintf("%s, want %s", wrong.Value, want)
	}
	return fmt.Sprintf("%s is %s, want %s", wrong.Field, wrong.Value, want)
}
