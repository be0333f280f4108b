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
)

const (
	maxBody = 64 << 10
	// actionTimeout bounds an action. The Desk gives up before that.
	actionTimeout = 45 * time.Second
)

// actor does what a request's body asks of a stream. who is the caller.
type actor func(ctx context.Context, stream, who string, body []byte) (any, error)

// action lets those act who may. Nothing of a body is read before that is
// known.
func (h *handler) action(act actor) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// The owner may take its time to acknowledge.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(actionTimeout + writeTimeout))
		ctx, cancel := context.WithTimeout(r.Context(), actionTimeout)
		defer cancel()
		done, err := h.perform(ctx, w, r, act)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		reply(w, http.StatusOK, done)
	}
}

func (h *handler) perform(ctx context.Context, w http.ResponseWriter, r *http.Request, act actor) (any, error) {
	if err := h.guard.mayAct(r); err != nil {
		return nil, err
	}
	stream, err := h.stream(r)
	if err != nil {
		return nil, err
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, &Error{Status: http.StatusUnsupportedMediaType, Err: errors.New("the body of an action is JSON"), Hint: "Content-Type: application/json"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	switch {
	case isTooLarge(err):
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Err: fmt.Errorf("the body has more than %d bytes", maxBody)}
	case err != nil:
		return nil, badRequest("the whole body", "read the body: %w", err)
	}
	return act(ctx, stream, "http:"+callerOf(r), body)
}

// pauseRequest is the body of a pause, and, without For, of a resume.
type pauseRequest struct {
	Reason string `json:"reason"`
	For    string `json:"for"`
}

func (h *handler) pause(ctx context.Context, stream, who string, body []byte) (any, error) {
	var req pauseRequest
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	o := Order{Kind: bridge.KindPause, Who: who, Reason: req.Reason}
	if req.For != "" {
		var err error
		if o.For, err = time.ParseDuration(req.For); err != nil || o.For < time.Second {
			return nil, badRequest(`"for": "30m"`, "for: %q is not a duration of a second or more", shorten(req.For))
		}
	}
	return h.do(ctx, stream, o)
}

func (h *handler) resume(ctx context.Context, stream, who string, body []byte) (any, error) {
	var req struct {
		Reason string `json:"reason"`
	}
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	return h.do(ctx, stream, Order{Kind: bridge.KindResume, Who: who, Reason: req.Reason})
}

// moveRequest is the body of a move.
type moveRequest struct {
	To      Destination `json:"to"`
	Reason  string      `json:"reason"`
	Execute bool        `json:"execute"`
	// Confirm is the stream's name once more, BaseEpoch that of the plan; only
	// with Execute.
	Confirm   string `json:"confirm"`
	BaseEpoch *int64 `json:"base_epoch"`
}

func (h *handler) move(ctx context.Context, stream, who string, body []byte) (any, error) {
	var req moveRequest
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	if err := req.To.validate(time.Now()); err != nil {
		return nil, err
	}
	if err := checkReason(req.Reason); err != nil {
		return nil, err
	}
	switch {
	case !req.Execute:
		return h.Desk.Plan(ctx, stream, req.To)
	case req.Confirm != stream:
		return nil, badRequest(fmt.Sprintf(`"confirm": %q`, stream), "confirm: %q is not the name of the stream", shorten(req.Confirm))
	case req.BaseEpoch == nil:
		return nil, badRequest("the base_epoch of the plan", "base_epoch is missing: a move is planned before it is executed")
	}
	return h.do(ctx, stream, Order{Kind: bridge.KindReset, Who: who, Reason: req.Reason, To: req.To, BaseEpoch: *req.BaseEpoch})
}

// validate wants exactly one field, with a value that can be meant.
func (d *Destination) validate(now time.Time) error {
	given := 0
	for _, is := range []bool{d.Entry != "", !d.Datetime.IsZero(), d.Shift != 0, d.Earliest, d.Current, d.Latest} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return badRequest(`"to": {"shift": -5}`, "to: says %d places, want one of entry, datetime, shift, earliest, current, latest", given)
	case d.Shift > 0:
		return badRequest(`"shift": -5`, "shift: %d does not go back", d.Shift)
	case d.Datetime.After(now):
		return badRequest(`"latest": true`, "datetime: %s is in the future", d.Datetime.Format(time.RFC3339))
	}
	return nil
}

// do has an order carried out, and says in the log who wanted it.
func (h *handler) do(ctx context.Context, stream string, o Order) (any, error) {
	if err := checkReason(o.Reason); err != nil {
		return nil, err
	}
	log := h.Logger.With("stream", stream, "action", string(o.Kind), "who", o.Who, "reason", o.Reason)
	done, err := h.Desk.Do(ctx, stream, o)
	if err != nil {
		log.Warn("action failed", "error", err.Error())
		return nil, err
	}
	log.Info("action done", "by", done.By, "entry", done.Place.String())
	return done, nil
}

// checkReason wants a reason that the history can keep.
func checkReason(reason string) error {
	const hint = `"reason": "the vendor migrates"`
	if strings.TrimSpace(reason) == "" {
		return badRequest(hint, "reason is empty: the history says why")
	}
	if err := bridge.CheckReason(reason); err != nil {
		return badRequest(hint, "%s", err)
	}
	return nil
}

// decode reads one JSON object with no other fields than into has.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = errors.New("something follows the object")
		}
	}
	if err != nil {
		return badRequest(`{"reason": "the vendor migrates"}`, "the body is not what is expected: %s", shorten(explainJSON(err)))
	}
	return nil
}

// explainJSON says what is wrong in the words of JSON, not of Go.
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
	}
	if wrong.Field == "" {
		return fmt.Sprintf("%s where %s is wanted", wrong.Value, want)
	}
	return fmt.Sprintf("%s is %s, want %s", wrong.Field, wrong.Value, want)
}
