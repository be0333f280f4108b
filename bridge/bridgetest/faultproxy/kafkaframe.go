package faultproxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxFrame is more than a broker accepts. A larger frame is not Kafka's protocol, but TLS
// for example.
const maxFrame = 256 << 20

// readFrame returns one request or reply with the four bytes of its size. It uses memory if
// that is large enough.
func readFrame(from io.Reader, memory []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > maxFrame {
		return nil, fmt.Errorf("read a frame of Kafka: %d bytes; is this a plain listener?", n)
	}
	frame := append(slices.Grow(memory[:0], int(4+n)), size[:]...)[:4+n]
	_, err := io.ReadFull(from, frame[4:])
	return frame, err
}

// requestHeader is the beginning of every request.
type requestHeader struct {
	key         kmsg.Key
	version     int16
	correlation int32
	client      string
	body        []byte // begins with the tags of the header, if the version has tags
}

func parseRequest(frame []byte) (requestHeader, error) {
	r := kbin.Reader{Src: frame[4:]}
	h := requestHeader{key: kmsg.Key(r.Int16()), version: r.Int16(), correlation: r.Int32()}
	if client := r.NullableString(); client != nil {
		h.client = *client
	}
	if !r.Ok() {
		return h, errors.New("parse a request to Kafka: its header is incomplete")
	}
	h.body = r.Src
	return h, nil
}

// correlationOf returns the correlation id of a reply.
func correlationOf(reply []byte) int32 { return int32(binary.BigEndian.Uint32(reply[4:])) }

// decode returns the request, or nil for an unknown kind.
func (h *requestHeader) decode() (kmsg.Request, error) {
	request := h.key.Request()
	if request == nil {
		return nil, nil
	}
	request.SetVersion(h.version)
	r := kbin.Reader{Src: h.body}
	if request.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if err := request.ReadFrom(r.Src); err != nil {
		return nil, fmt.Errorf("decode %s version %d: %w", h.key.Name(), h.version, err)
	}
	return request, nil
}

// decodeReply returns the reply to the request, or nil for an unknown kind.
func (h *requestHeader) decodeReply(frame []byte) (kmsg.Response, error) {
	reply := h.key.Response()
	if reply == nil {
		return nil, nil
	}
	reply.SetVersion(h.version)
	r := kbin.Reader{Src: frame[8:]}
	if reply.IsFlexible() && h.key != kmsg.ApiVersions { // the header of an ApiVersions reply never has tags
		kmsg.SkipTags(&r)
	}
	if err := reply.ReadFrom(r.Src); err != nil {
		return nil, fmt.Errorf("decode the reply to %s version %d: %w", h.key.Name(), h.version, err)
	}
	return reply, nil
}
