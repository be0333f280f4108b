package servers

import (
	"encoding/binary"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Where a record batch has its producer.
const (
	batchProducerID    = 43
	batchProducerEpoch = 51
	batchHeader        = 61
)

// EmulateKafkaFencing lets an embedded cluster answer producers that are fenced, and readers
// that are outside of the log, as Apache Kafka 4.3 does. By itself kfake
//
//   - accepts InitProducerID with an old id and epoch, so that a zombie fences
//     its successor. Here it is PRODUCER_FENCED, always: Apache Kafka lets a
//     producer have its id again in a few cases, but a session of ours never
//     asks for that, it is a new client. So this also shows that nothing heals
//     itself.
//   - takes an EndTxn for a repetition if its epoch is one behind, and answers
//     a commit with INVALID_TXN_STATE or success. Here it is PRODUCER_FENCED.
//   - opens a transaction for the new producer when the old one produces. Here
//     that changes nothing. It is INVALID_PRODUCER_EPOCH in any case.
//   - says with OFFSET_OUT_OF_RANGE where the log begins and ends. Here those
//     fields are -1: only ListOffsets tells.
//
// The second and the third hold for a producer that had used its epoch before the newer
// one began. What stays different: a transactional id keeps the time-out of
// its first InitProducerID, and nothing takes time, so CONCURRENT_TRANSACTIONS
// does not occur.
func EmulateKafkaFencing(c *kfake.Cluster) *Fencing {
	s := &Fencing{ids: make(map[string]*transactionalID)}
	control := func(key kmsg.Key, answer func(kmsg.Request) kmsg.Response) {
		c.ControlKey(key.Int16(), func(request kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			s.mu.Lock()
			defer s.mu.Unlock()
			response := answer(request)
			return response, nil, response != nil
		})
	}
	control(kmsg.InitProducerID, s.initProducerID)
	control(kmsg.EndTxn, s.endTxn)
	control(kmsg.Produce, s.produce)
	control(kmsg.Fetch, func(r kmsg.Request) kmsg.Response { return outOfRange(c, r.(*kmsg.FetchRequest)) })
	return s
}

// outOfRange answers a fetch of which a partition is outside of its log. The
// others, as it may be with a broker, have nothing new.
func outOfRange(c *kfake.Cluster, r *kmsg.FetchRequest) kmsg.Response {
	response := r.ResponseKind().(*kmsg.FetchResponse)
	response.SessionID = r.SessionID
	outside := false
	for _, topic := range r.Topics {
		name := topic.Topic
		if info := c.TopicIDInfo(topic.TopicID); name == "" && info != nil {
			name = info.Topic
		}
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = topic.Topic, topic.TopicID
		for _, partition := range topic.Partitions {
			info := c.PartitionInfo(name, partition.Partition)
			if info == nil || info.Leader != c.CurrentNode() {
				return nil // kfake says what is wrong with it
			}
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.RecordBatches = partition.Partition, []byte{}
			p.HighWatermark, p.LastStableOffset, p.LogStartOffset = info.HighWatermark, info.LastStableOffset,
				info.LogStartOffset
			if partition.FetchOffset < info.LogStartOffset || partition.FetchOffset > info.HighWatermark {
				outside = true
				p.ErrorCode = kerr.OffsetOutOfRange.Code
				p.HighWatermark, p.LastStableOffset, p.LogStartOffset = -1, -1, -1
			}
			t.Partitions = append(t.Partitions, p)
		}
		response.Topics = append(response.Topics, t)
	}
	if !outside {
		return nil
	}
	return response
}

// Fencing counts what producers tried in order to heal themselves. Its
// methods may be called concurrently.
type Fencing struct {
	mu      sync.Mutex // guards all below
	reinits int
	aborts  int
	ids     map[string]*transactionalID
}

// identity is a producer id with its epoch.
type identity struct {
	id    int64
	epoch int16
}

// transactionalID is what is known of one.
type transactionalID struct {
	seen   identity // the newest that was used
	fenced identity // the newest that was used before the last InitProducerID
}

// Reinits returns how many InitProducerIDs asked for an old id. All were
// refused.
func (s *Fencing) Reinits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reinits
}

// Aborts returns how many EndTxns wanted to abort.
func (s *Fencing) Aborts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.aborts
}

// stale notes that a producer used its identity, and reports whether a newer
// one has begun since it did so for the first time. mu is held.
func (s *Fencing) stale(transactional string, used identity) bool {
	known := s.ids[transactional]
	switch {
	case known == nil:
		s.ids[transactional] = &transactionalID{seen: used, fenced: identity{id: -1}}
		return false
	case used.id != known.seen.id: // the id rotates when its epochs are used up
		known.seen, known.fenced = used, identity{id: -1}
		return false
	case used.epoch > known.seen.epoch:
		known.seen = used
	}
	return used.id == known.fenced.id && used.epoch <= known.fenced.epoch
}

func (s *Fencing) initProducerID(request kmsg.Request) kmsg.Response {
	r := request.(*kmsg.InitProducerIDRequest)
	if r.TransactionalID == nil {
		return nil
	}
	if r.ProducerID < 0 {
		// Should it fail, it has fenced the older ones all the same: Apache
		// Kafka does that first and then lets the new one wait.
		if known := s.ids[*r.TransactionalID]; known != nil {
			known.fenced = known.seen
		}
		return nil
	}
	s.reinits++
	response := r.ResponseKind().(*kmsg.InitProducerIDResponse)
	response.ErrorCode = kerr.ProducerFenced.Code
	return response
}

func (s *Fencing) endTxn(request kmsg.Request) kmsg.Response {
	r := request.(*kmsg.EndTxnRequest)
	if !r.Commit {
		s.aborts++
	}
	if !s.stale(r.TransactionalID, identity{r.ProducerID, r.ProducerEpoch}) {
		return nil
	}
	response := r.ResponseKind().(*kmsg.EndTxnResponse)
	response.ErrorCode = kerr.ProducerFenced.Code
	return response
}

func (s *Fencing) produce(request kmsg.Request) kmsg.Response {
	r := request.(*kmsg.ProduceRequest)
	if r.TransactionID == nil || !s.staleBatches(r) {
		return nil
	}
	response := r.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range r.Topics {
		t := kmsg.NewProduceResponseTopic()
		t.Topic, t.TopicID = topic.Topic, topic.TopicID
		for _, partition := range topic.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode = partition.Partition, kerr.InvalidProducerEpoch.Code
			t.Partitions = append(t.Partitions, p)
		}
		response.Topics = append(response.Topics, t)
	}
	return response
}

// staleBatches looks at every batch: all are of one producer.
func (s *Fencing) staleBatches(r *kmsg.ProduceRequest) bool {
	stale := false
	for _, topic := range r.Topics {
		for _, partition := range topic.Partitions {
			b := partition.Records
			if len(b) < batchHeader {
				continue // kfake says what is wrong with it
			}
			stale = s.stale(*r.TransactionID, identity{
				id:    int64(binary.BigEndian.Uint64(b[batchProducerID:])),
				epoch: int16(binary.BigEndian.Uint16(b[batchProducerEpoch:])),
			}) || stale
		}
	}
	return stale
}
