package setup

import "testing"

// TestReadmeInStep keeps the README's settings table what the program says.
func TestReadmeInStep(t *testing.T) {
	t.Parallel()
	if err := checkDocs("../../../exportbridge/docs/settings.md"); err != nil {
		t.Error(err)
	}
}
