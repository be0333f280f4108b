package deadletter_test

import (
	"testing"

	"exportbridge/bridge/bridgetest/model"
)

// retries is the protocol of retries. The head of the file says what is in it.
var retries = model.Model{File: "retry.pml", Runs: []model.Run{
	{Defines: "-DSAME"},
	{Defines: "-DSAME -DFINITE"},
	{Defines: "-DRUNS=2 -DFAULTS=2"},
	{Defines: "-DRUNS=2 -DFAULTS=2 -DFINITE"},

	{Variant: "NO_TOPIC_ID", Defines: "-DFINITE", Finds: "ever[at]>0"},
	{Variant: "NO_LOOK", Finds: "ever[at]>0"},
	{Variant: "LSO_STALE", Finds: "ever[at]<=1"},
	{Variant: "READ_FIRST", Finds: "ever[at]<=1"},
	{Variant: "NO_FENCE", Finds: "ever[at]<=1"},
	{Variant: "MARK_LATER", Finds: "ever[at]<=1"},
	{Variant: "MARK_BEFORE", Finds: "ever[at]>0"},
	{Variant: "NO_DOUBT", Finds: "ever[at]<=1"},
	{Variant: "NO_STRANGER", Finds: "ever[at]<=1"},
	{Variant: "OTHER_SESSION", Finds: "ever[at]<=1"},
	{Variant: "NO_DUPLICATE", Defines: "-DSAME", Finds: "ever[0]<=1"},
}}

// TestModel walks through every schedule of the model: none breaks the protocol, and each
// rule that is taken away is missed.
func TestModel(t *testing.T) {
	t.Parallel()
	retries.Check(t)
}

// TestModelIsComplete: the head of the model is true.
func TestModelIsComplete(t *testing.T) {
	t.Parallel()
	retries.Complete(t)
}
