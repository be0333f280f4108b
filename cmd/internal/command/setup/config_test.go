package setup

import "testing"

// TestReadmeInStep: the settings table in the documents is the one that the program prints.
func TestReadmeInStep(t *testing.T) {
	t.Parallel()
	if err := checkDocs("../../../exportbridge/docs/settings.md"); err != nil {
		t.Error(err)
	}
}
