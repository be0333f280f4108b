package embedded

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
)

// commandStats answers INFO commandstats, which miniredis does not know, as Redis
// does: with the calls of each command, those of scripts included.
type commandStats struct {
	mu    sync.Mutex // guards calls
	calls map[string]int
}

// answer is a hook of miniredis: it counts a command, and reports whether it was
// answered.
func (s *commandStats) answer(c *server.Peer, command string, args ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if command == "INFO" && len(args) == 1 && strings.EqualFold(args[0], "commandstats") {
		var lines strings.Builder
		lines.WriteString("# Commandstats\r\n")
		for _, name := range slices.Sorted(maps.Keys(s.calls)) {
			fmt.Fprintf(&lines, "cmdstat_%s:calls=%d\r\n", strings.ToLower(name), s.calls[name])
		}
		c.WriteBulk(lines.String())
		return true
	}
	if s.calls == nil {
		s.calls = make(map[string]int)
	}
	s.calls[command]++
	return false
}
