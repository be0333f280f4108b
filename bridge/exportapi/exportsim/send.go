package exportsim

import (
	"context"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"
)

// throttleChunk is how much of a body is transmitted at once, in bytes.
const throttleChunk = 16 << 10

// send writes the answer, and breaks it as the fault demands.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, a answer, fault string) {
	if fault == FaultStall {
		select {
		case <-r.Context().Done():
		case <-h.closed:
		}
		panic(http.ErrAbortHandler)
	}
	header := w.Header()
	maps.Copy(header, a.header)
	h.tellLimit(header)
	if h.config.Clock != nil {
		header.Set("Date", h.config.Clock().UTC().Format(http.TimeFormat))
	}
	body := a.body
	if a.status == http.StatusOK && len(h.compressor.offered) > 0 {
		header.Set("Vary", "Accept-Encoding")
		if encoding := h.compressor.choose(r.Header.Get("Accept-Encoding")); encoding != "" {
			header.Set("Content-Encoding", encoding)
			ahead, ok := a.encoded[encoding]
			if !ok {
				pooled := h.bodies.Get().(*[]byte)
				defer h.bodies.Put(pooled)
				*pooled = h.compressor.append((*pooled)[:0], body, encoding)
				ahead = *pooled
			}
			body = ahead
		}
	}
	header.Set("Content-Type", a.contentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if a.retryAfter != "" {
		header.Set("Retry-After", a.retryAfter)
	}
	if a.allow != "" {
		header.Set("Allow", a.allow)
	}
	if fault == FaultReset || fault == FaultTruncate {
		// The server closes a connection if the answer is shorter than announced.
		body = body[:len(body)/2]
	}
	w.WriteHeader(a.status)
	h.write(r.Context(), w, body)
	if fault == FaultReset {
		reset(w)
	}
}

// write sends the body at the speed of the link, until the client is gone.
func (h *Handler) write(ctx context.Context, w http.ResponseWriter, body []byte) {
	if h.config.BandwidthBits == 0 {
		_, _ = w.Write(body)
		return
	}
	controller := http.NewResponseController(w)
	over := time.Now()
	for len(body) > 0 {
		chunk := body[:min(throttleChunk, len(body))]
		over = h.link.reserve(len(chunk), over)
		if !h.wait(ctx, time.Until(over)) {
			return
		}
		if _, err := w.Write(chunk); err != nil {
			return
		}
		if err := controller.Flush(); err != nil {
			return
		}
		body = body[len(chunk):]
	}
}

// wait returns true after d, or false if the request or the Handler ends before.
func (h *Handler) wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-h.closed:
	}
	return false
}

// reset sends what was written and then a TCP reset. If the connection cannot be taken over
// (HTTP/2), only the short body is broken.
func reset(w http.ResponseWriter) {
	controller := http.NewResponseController(w)
	if err := controller.Flush(); err != nil {
		return
	}
	conn, _, err := controller.Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	raw := conn
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		raw = secured.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		// Closing with unsent data and no linger time resets the connection. Closing
		// the raw connection prevents the close message of TLS.
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
	}
}
