package door

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Outcome is how a request ended.
type Outcome string

// The outcomes. Allowed is written before the action begins, Failed after it. Without a
// Failed, the action succeeded or the process ended.
const (
	Allowed Outcome = "allowed"
	Denied  Outcome = "denied"
	Failed  Outcome = "failed"
)

// Record is a line of the audit log. It has no query, header and body, which may hold
// secrets.
type Record struct {
	Time    time.Time `json:"time"`
	Outcome Outcome   `json:"outcome"`
	Who     string    `json:"who,omitempty"`
	Auth    Method    `json:"auth,omitempty"` // empty if the caller was not recognized
	Address string    `json:"address"`
	Request string    `json:"request"` // method and path
	Action  string    `json:"action,omitempty"`
	Stream  string    `json:"stream,omitempty"`
	Job     string    `json:"job,omitempty"`
	Reason  string    `json:"reason,omitempty"` // reason that the caller gave
	Status  int       `json:"status,omitempty"` // HTTP status of a denied request
	Count   int       `json:"count,omitempty"`  // number of denied requests without a line of their own
	Error   string    `json:"error,omitempty"`
}

// Audit is a file of records, one JSON object per line. A nil Audit writes none.
type Audit struct {
	path string // empty for standard output

	mu   sync.Mutex // guards all below
	file *os.File
	torn bool // the last line may lack its end
}

// OpenAudit opens the file at path for appending. It creates a missing file, which only its
// owner can read. "-" is standard output.
func OpenAudit(path string) (*Audit, error) {
	if path == "-" {
		return &Audit{file: os.Stdout}, nil
	}
	a := &Audit{path: path}
	if err := a.open(); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *Audit) open() error {
	file, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open HTTP_AUDIT_LOG: %w", err)
	}
	if a.file != nil {
		_ = a.file.Close() // the file was renamed, and all its lines are written
	}
	a.file, a.torn = file, tears(file)
	return nil
}

// tears reports whether the last line of a file may lack its end, because the process or
// the machine stopped during the write.
func tears(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	written, err := os.Open(file.Name())
	if err != nil {
		return true // unknown: an empty line does no harm
	}
	defer written.Close()
	var last [1]byte
	_, err = written.ReadAt(last[:], info.Size()-1)
	return err != nil || last[0] != '\n'
}

// Write appends a record. When it returns nil, the operating system has the whole line.
// A file that was renamed or removed is created again.
func (a *Audit) Write(r Record) error {
	if a == nil {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write HTTP_AUDIT_LOG: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.follow(); err != nil {
		return err
	}
	if a.torn {
		line = append([]byte("\n"), line...)
	}
	_, err = a.file.Write(append(line, '\n'))
	if a.torn = err != nil; a.torn {
		return fmt.Errorf("write HTTP_AUDIT_LOG: %w", err)
	}
	return nil
}

// follow opens the file again if path now leads to another file.
func (a *Audit) follow() error {
	if a.path == "" {
		return nil
	}
	now, err := os.Stat(a.path)
	if err == nil {
		if was, err := a.file.Stat(); err == nil && os.SameFile(now, was) {
			return nil
		}
	}
	return a.open()
}

// Close closes the file.
func (a *Audit) Close() error {
	if a == nil || a.path == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.file.Close()
}
