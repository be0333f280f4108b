package engine_test

import (
	"testing"

	"exportbridge/bridge/bridgetest/model"
)

// Sizes. One reset is enough to see most rules missing; the more can happen in
// a configuration, the smaller it must be.
const (
	modelSmall    = "-DNPOS=2 -DNRESET=1 -DNO_OWNER"
	modelRequests = "-DNPOS=1 -DNRESET=2 -DNO_OWNER -DNO_REDIS_FAIL"
	modelOffline  = "-DNPOS=0 -DNRESET=2 -DNO_OWNER -DNO_REDIS_FAIL -DOFFLINE"
	modelDeadline = "-DNPOS=1 -DNRESET=1 -DNO_OWNER -DNO_REDIS_FAIL -DDEADLINE"
	modelLive     = "-DNPOS=1 -DNRESET=1 -DLIVE=1 -DOFFLINE -DNO_REDIS_FAIL"
	modelSwitch   = "-DNPOS=2 -DNRESET=0 -DSWITCH=2 -DNO_REDIS_FAIL"
	modelPlain    = "-DNPOS=2 -DNRESET=0 -DPLAIN"
	notDone       = "acceptance cycle"
)

// protocol is the commit protocol. The head of the file says what is in it.
var protocol = model.Model{File: "exactly_once.pml", Runs: []model.Run{
	{Defines: modelSmall},
	{Defines: "-DNPOS=1 -DNRESET=1 -DNO_REDIS_FAIL"}, // with ownership
	{Defines: modelRequests},
	{Defines: modelOffline},
	{Defines: "-DNPOS=1 -DNRESET=1 -DNO_OWNER -DNO_REDIS_FAIL -DWITHDRAW"},   // holds while Redis does
	{Defines: "-DNPOS=1 -DNRESET=1 -DNO_OWNER -DNO_REDIS_FAIL -DCKPT_FIRST"}, // harmless from transaction.version 2 on
	{Defines: modelDeadline},
	{Defines: modelSwitch},
	{Defines: "-DNPOS=1 -DNRESET=0 -DSWITCH=1"},
	{Defines: "-DNPOS=2 -DNRESET=0 -DSWITCH=1 -DPLAIN -DNO_REDIS_FAIL"},
	{Defines: modelPlain},
	{Defines: modelLive, Live: true},
	{Defines: "-DNPOS=1 -DNRESET=1 -DLIVE=1", Live: true},

	{Variant: "ORIG_RESET", Defines: modelSmall, Finds: "cR>=acked"},
	{Variant: "ASSUME_ABORT", Defines: modelSmall, Finds: "txFrom>=expect"},
	{Variant: "READ_FIRST", Defines: modelSmall, Finds: "txFrom>=expect"},
	{Variant: "LSO_STALE", Defines: modelSmall, Finds: "txFrom>=expect"},
	{Variant: "NO_BASE", Defines: modelSmall, Finds: "applied[ckR]==1"},
	{Variant: "LAST_RID", Defines: "-DNPOS=1 -DNRESET=2 -DNO_OWNER", Finds: "cR>=acked"},
	{Variant: "SAME_EPOCH", Defines: "-DNPOS=1 -DNRESET=2 -DNO_OWNER", Finds: "cR>=acked"},
	{Variant: "NO_PROOF", Defines: modelRequests, Finds: "qBase!=kE"},
	{Variant: "TV1", Defines: modelSmall, Finds: "txFrom>=expect"},
	{Variant: "CKPT_FIRST", Defines: modelSmall + " -DTV1", Finds: "ckP<=expect"},
	{Variant: "IGNORE_PROMISE", Defines: modelSmall, Finds: "ckP<=expect"},
	{Variant: "SAVE_BEFORE_COMMIT", Defines: modelSmall, Finds: "ckP<=expect"},
	{Variant: "REDIS_WINS", Defines: modelSmall, Finds: "txFrom>=expect"},
	{Variant: "REDIS_LATE", Defines: "-DNPOS=1 -DNRESET=1 -DNO_OWNER -DNO_REDIS_FAIL", Finds: "lE<=cE"},
	{Variant: "MIRROR_FIRST", Defines: modelSmall, Finds: "rE<=kE"},
	{Variant: "WITHDRAW", Defines: "-DNPOS=1 -DNRESET=1 -DNO_OWNER", Finds: "ckR!=withdrawn"},
	{Variant: "CLAIM_OUTLIVES", Defines: modelDeadline, Finds: "ckClaim==standing"},
	{Variant: "EXPIRE_LIVE", Defines: modelDeadline, Finds: "applied[qId]==0"},
	{Variant: "OFFLINE_REBASE", Defines: modelOffline, Finds: "applied[ckR]==1"},
	{Variant: "NO_MINT", Defines: modelSwitch, Finds: "cP>=sure"},
	{Variant: "MINT_REDIS_ONLY", Defines: modelSwitch, Finds: "cP>=sure"},
	{Variant: "MINT_REDIS_FIRST", Defines: modelSwitch, Finds: "cP>=sure"},
	{Variant: "SAVE_FIRST", Defines: modelPlain, Finds: "cP<=pub"},
	{Variant: "NO_OWNER", Defines: modelLive, Live: true, Finds: notDone},
	{Variant: "NO_HEARTBEAT", Defines: modelLive, Live: true, Finds: notDone},
	{Variant: "OFFLINE_FIGHT", Defines: modelLive, Live: true, Finds: notDone},
}}

// TestModel walks through every schedule of the model: none breaks the protocol, and each
// rule that is taken away is missed.
func TestModel(t *testing.T) {
	t.Parallel()
	protocol.Check(t)
}

// TestModelIsComplete: the head of the model is true.
func TestModelIsComplete(t *testing.T) {
	t.Parallel()
	protocol.Complete(t)
}
