package learn_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// TestNames: learn finds the type and the key by whole words, and asks about a doubt.
func TestNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		item string // %d is its number, of three the users and the types
		want []string
	}{
		"factor is no actor": {`"factor":"f%[2]d","event_type":"t%[2]d","user":{"name":"u%[2]d","key":"k%[2]d"}`,
			[]string{"EXPORT_ITEM_TYPE=/event_type\n", "KAFKA_KEY=/user/key\n",
				"others may be right:\n#   /user/name\nKAFKA_KEY="}},
		"the action, not the actor": {
			`"action":{"name":"a%[2]d"},"actor":{"gid":"g%[2]d","type":"t%[2]d"},"target":{"type":"s%[2]d"}`,
			[]string{"text in every item\nEXPORT_ITEM_TYPE=/action/name\n", "KAFKA_KEY=/actor/gid\n"}},
		"a constant": {`"type":"event","action":"a%[2]d","account_id":"a","user_agent":"b%[2]d","user":"u%[2]d"`,
			[]string{"EXPORT_ITEM_TYPE=/action\n", "KAFKA_KEY=/user\n"}},
		"all are the same": {`"kind":"flag","user":{"name":"u%[2]d"}`,
			[]string{"# ? it is the same in all items that were read\nEXPORT_ITEM_TYPE=/kind\n", "KAFKA_KEY=/user/name\n"}},
		"only the type of an actor": {`"kind":"flag","actor":{"type":"t%[2]d"},"target_user_id":"i%[2]d"`,
			[]string{"# ? ", "EXPORT_ITEM_TYPE=/actor/type\n", "KAFKA_KEY=none\n"}},
		"a comma before a number": {`"a,user":{"id":%[2]d},"type":"t%[2]d"`,
			[]string{"EXPORT_ITEM_TYPE=/type\n", "KAFKA_KEY=none\n"}},
		"a comma before a time": {`"a,b":{"created_at":"2026-09-2%[2]dT00:00:00Z"},"type":"t%[2]d"`,
			[]string{"EXPORT_ITEM_TYPE=/type\n", "EXPORT_ITEM_TIME=none\n"}},
		"two types": {`"type":"t%[2]d","action":"a%[2]d","createdBy":{"id":"i%[2]d"}`,
			[]string{"# ? others may be right: /action\nEXPORT_ITEM_TYPE=/type\n", "KAFKA_KEY=/createdBy/id\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := odd(t, new(atomic.Int64), func(w http.ResponseWriter, r *http.Request) {
				at, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Query().Get("cursor"), "c"))
				var all []string
				for n := at; n < at+10; n++ {
					all = append(all, fmt.Sprintf(`{"id":"i%[1]d",`+c.item+`}`, n, n%3))
				}
				fmt.Fprintf(w, `{"items":[%s],"next":"c%d"}`, strings.Join(all, ","), at+10)
			})
			profile := learned(t, "curl "+url+"/e?limit=10")
			wantIn(t, profile, c.want...)
		})
	}
}
