package windows_test

import (
	"testing"

	"exportbridge/bridge/bridgetest/model"
)

const (
	twice  = "copies[i]==0"
	passed = "copies[i]==1"
)

// windowProtocol is the step of a stream that follows windows. The head of the file says
// what is in it.
var windowProtocol = model.Model{File: "window.pml", Runs: []model.Run{
	{Defines: "-DNRESETS=1"},
	{Defines: "-DNRESETS=2 -DLAST=1"},
	{Defines: "-DNRESETS=0 -DLAST=3 -DGAP"},
	{Defines: "-DNRESETS=0 -DDELETE"},
	{Defines: "-DNRESETS=0 -DBACK=2"},

	{Variant: "NO_LOOK_BACK", Finds: passed},
	{Variant: "NO_SETTLE", Finds: passed},
	{Variant: "MOVE_EARLY", Finds: passed},
	{Variant: "FORGET_TOPIC", Finds: twice},
	{Variant: "KEEP_MEMORY", Finds: passed},
	{Variant: "FORGET_EARLY", Finds: twice},
	{Variant: "MARK_NEW", Defines: "-DNRESETS=0 -DBACK=2", Finds: twice},
	{Variant: "MARK_LATE", Finds: twice},
	{Variant: "MARK_AHEAD", Finds: twice},
	{Variant: "NO_FENCE", Finds: twice},
	{Variant: "READ_FIRST", Finds: twice},
	{Variant: "NO_FLOOR", Finds: twice},
	{Variant: "NO_AGAIN", Finds: passed},
	{Variant: "AGAIN_LATER", Finds: twice},
	{Variant: "AGAIN_ALL", Finds: twice},
	{Variant: "KEEP_LISTING", Finds: passed},
	{Variant: "NO_RETENTION", Defines: "-DNRESETS=0 -DDELETE", Finds: twice},
}}

// TestModel walks through every schedule of the model: none breaks the protocol, and each
// rule that is taken away is missed.
func TestModel(t *testing.T) {
	t.Parallel()
	windowProtocol.Check(t)
}

// TestModelIsComplete: the head of the model is true.
func TestModelIsComplete(t *testing.T) {
	t.Parallel()
	windowProtocol.Complete(t)
}
