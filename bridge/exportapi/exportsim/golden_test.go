package exportsim_test

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The default form always serves the same bytes: benchmarks and tests rely on them.
func TestDefaultFormIsUnchanged(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, schema := range schemas {
		for _, contract := range contracts {
			for _, first := range []bool{false, true} {
				if first && contract != exportsim.NoCursor {
					continue
				}
				h := newHandler(t, exportsim.Config{
					Seed: 7, Events: 700, Schema: schema, EndOfResults: contract, CursorFirst: first, APIKey: "right",
				})
				for _, target := range goldenTargets() {
					pages, sum := walkDigest(h, target)
					fmt.Fprintf(&got, "%s %s first=%v %s: %d answers %x\n", schema, contract, first, target, pages, sum)
				}
			}
		}
	}
	const file = "testdata/default.golden"
	if *update {
		must.Do(t, os.WriteFile(file, []byte(got.String()), 0o600))
	}
	want := must.Get(os.ReadFile(file))(t)
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("the default form serves other bytes (-want +got):\n%s", diff)
	}
}

func goldenTargets() []string {
	middle, later := millis(start.Add(20*time.Second)), millis(start.Add(50*time.Second))
	return []string{
		"/events?", "/events?pageSize=250", "/events?pageSize=350&start=" + middle + "&end=" + later,
		"/events?events=orderPlaced&events=pageOpened&pageSize=20", "/session?pageSize=50", "/user?end=" + later,
		"/events?pageSize=0", "/events?cursor=", "/events?start=2&end=1", "/events?start=x", "/events?events=x",
		"/events?cursor=a&cursor=b", "/nothing?",
	}
}

// walkDigest follows the cursor. It returns the number of answers and a sum of their
// status, headers and bodies.
func walkDigest(h http.Handler, target string) (answers int, sum []byte) {
	digest := sha256.New()
	next, asked := target, ""
	for {
		r := recordStatus(h, next, "X-Api-Key", "right")
		answers++
		fmt.Fprintf(digest, "%d\n", r.Code)
		_ = r.Header().Write(digest) // sorted
		digest.Write(r.Body.Bytes())
		var p page
		_ = json.Unmarshal(r.Body.Bytes(), &p)
		if p.cursor() == "" || p.cursor() == asked {
			return answers, digest.Sum(nil)[:8]
		}
		asked = p.cursor()
		next = target + "&cursor=" + url.QueryEscape(asked)
	}
}
