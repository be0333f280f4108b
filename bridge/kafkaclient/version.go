package kafkaclient

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TransactionVersion returns the cluster's transaction.version, 0 if it has
// none. Below 2 a late EndTxn after a crash may duplicate events; none are
// lost.
func (c *Client) TransactionVersion(ctx context.Context) (int, error) {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c)
	if err != nil {
		return 0, fmt.Errorf("ask for transaction.version: %w", err)
	}
	for i := range resp.FinalizedFeatures {
		if f := &resp.FinalizedFeatures[i]; f.Name == "transaction.version" {
			return int(f.MaxVersionLevel), nil
		}
	}
	return 0, nil
}

const (
	// StrictTransactions is the transaction.version from which every
	// transaction has its own producer epoch.
	StrictTransactions = 2
	// WeakTransactions describes the guarantee below StrictTransactions.
	WeakTransactions = "after a crash a late EndTxn may duplicate events; none are lost"
)

// UpgradeHint returns the command that raises transaction.version.
func (c *Config) UpgradeHint() string {
	return fmt.Sprintf("with Kafka 4: kafka-features.sh --bootstrap-server %s upgrade --feature transaction.version=2",
		c.Brokers[0])
}
