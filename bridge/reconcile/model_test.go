package reconcile_test

import (
	"testing"

	"exportbridge/bridge/bridgetest/model"
)

// repairs is the protocol of repairs. The head of the file says what is in it.
var repairs = model.Model{File: "repair.pml", Runs: []model.Run{
	{Defines: "-DUNDATED"},
	{Defines: "-DMOVES=1"},
	{Defines: "-DFINITE -DREMAKES=1"},
	{Defines: "-DOPENS=1 -DREMAKES=1"},
	{Defines: "-DEVENTS=2 -DRUNS=1"},

	{Variant: "NO_FRONTIER", Finds: "place[at]=="},
	{Variant: "NO_LATE", Finds: "place[at]=="},
	{Variant: "NO_AWAIT", Defines: "-DUNDATED", Finds: "place[at]=="},
	{Variant: "OLD_DRAIN", Finds: "place[at]=="},
	{Variant: "NO_SECOND_LOOK", Finds: "ever[at]<=1"},
	{Variant: "DRAINED_STAYS", Defines: "-DEVENTS=2 -DRUNS=1", Finds: "place[at]=="},
	{Variant: "NO_EPOCH", Defines: "-DMOVES=1", Finds: "place[at]=="},
	{Variant: "NO_KEEP", Defines: "-DFINITE -DREMAKES=1", Finds: "ever[at]<=1"},
	{Variant: "NO_TOPIC_ID", Defines: "-DFINITE -DREMAKES=1", Finds: "held[at]"},
	{Variant: "LSO_STALE", Defines: "-DOPENS=1", Finds: "ever[at]<=1"},
	{Variant: "LOOK_FIRST", Finds: "ever[at]<=1"},
	{Variant: "NO_FENCE", Finds: "ever[at]<=1"},
	{Variant: "MARK_LATER", Defines: "-DFINITE", Finds: "ever[at]<=1"},
	{Variant: "MARK_BEFORE", Defines: "-DFINITE", Finds: "held[at]"},
	{Variant: "NO_DOUBT", Finds: "ever[at]<=1"},
	{Variant: "NO_STRANGER", Finds: "ever[at]<=1"},
	{Variant: "OTHER_SESSION", Defines: "-DFINITE -DREMAKES=1", Finds: "ever[at]<=1"},
}}

// TestModel walks through every schedule of the model: none breaks the protocol, and each
// rule that is taken away is missed.
func TestModel(t *testing.T) {
	t.Parallel()
	repairs.Check(t)
}

// TestModelIsComplete: the head of the model is true.
func TestModelIsComplete(t *testing.T) {
	t.Parallel()
	repairs.Complete(t)
}
