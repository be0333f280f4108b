package backfill_test

import (
	"testing"

	"exportbridge/bridge/bridgetest/model"
)

// jobProtocol is the protocol of jobs. The head of the file says what is in it.
var jobProtocol = model.Model{File: "job.pml", Runs: []model.Run{
	{Defines: "-DCANCEL -DREMAKE -DTENANT"},
	{Defines: "-DFAULTS=2"},
	{Defines: "-DRUNS=3 -DNPOS=1 -DFAULTS=0 -DTENANT"},

	{Variant: "CHECKPOINT_LATER", Finds: "pages[w]==at"},
	{Variant: "CHECKPOINT_FIRST", Finds: "pages[0]==2"},
	{Variant: "NO_FENCE", Finds: "pages[w]==at"},
	{Variant: "READ_FIRST", Finds: "pages[w]==at"},
	{Variant: "ASSUME_ABORT", Finds: "pages[w]==at"},
	{Variant: "ENDED_EARLY", Finds: "pages[0]==2"},
	{Variant: "DONE_EARLY", Finds: "pages[0]==2"},
	{Variant: "NO_TOPIC_ID", Defines: "-DREMAKE", Finds: "!(late)"},
	{Variant: "NO_LAST_LOOK", Defines: "-DREMAKE", Finds: "!(late)"},
	{Variant: "NO_SOURCE", Defines: "-DTENANT", Finds: "published==src"},
	{Variant: "NO_SESSION_SOURCE", Defines: "-DTENANT", Finds: "published==src"},
	{Variant: "SOURCE_FORGOTTEN", Defines: "-DTENANT", Finds: "published==src"},
	{Variant: "CANCEL_BLIND", Defines: "-DCANCEL", Finds: "!(cancelled)"},
	{Variant: "RESUME_CANCELLED", Defines: "-DCANCEL", Finds: "!(stopped)"},
	{Variant: "BLIND_CHANGE", Defines: "-DCANCEL", Finds: "!(cancelled)"},
}}

// TestModel walks through every schedule of the model: none breaks the protocol, and each
// rule that is taken away is missed.
func TestModel(t *testing.T) {
	t.Parallel()
	jobProtocol.Check(t)
}

// TestModelIsComplete: the head of the model is true.
func TestModelIsComplete(t *testing.T) {
	t.Parallel()
	jobProtocol.Complete(t)
}
