package servers

import (
	"encoding/binary"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The offsets of a producer in a record batch.
const (
	batchProducerID    = 43
	batchProducerEpoch = 51
	batchHeader        = 61
)

// EmulateKafkaFencing makes an embedded cluster answer fenced producers, and fetches
// outside of the log, like Apache Kafka 4.3. By itself, kfake
//
//   - accepts InitProducerID with an old id and epoch, so that a zombie fences
//     its successor. The emulation always answers PRODUCER_FENCED. Apache Kafka
//     lets a producer have its id again in a few cases, but our sessions never ask
//     for that: each is a new client.
//   - takes an EndTxn whose epoch is one behind for a repetition, and answers a
//     commit with INVALID_TXN_STATE or success. The emulation answers
//     PRODUCER_FENCED.
//   - opens a transaction of the new producer when the old one produces. With the
//     emulation it does not. The answer is INVALID_PRODUCER_EPOCH in both cases.
//   - names the ends of the log in OFFSET_OUT_OF_RANGE. In the emulation these
//     fields are -1: only ListOffsets has the ends.
//
// The second and the third case require that the producer used its epoch before the newer
// one began. Two differences remain: a transactional id keeps the timeout of its first
// InitProducerID, and CONCURRENT_TRANSACTIONS never occurs, because nothing takes time.
func EmulateKafkaFencing(c *kfake.Cluster) {
	s := &fencing{ids: make(map[string]*transactionalID)}
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
}

// outOfRange answers a fetch in which an offset is outside of its log. The other partitions
// have no new records, as a broker may answer too.
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
				return nil // kfake returns the error
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

// fencing knows the producers of a cluster.
type fencing struct {
	mu  sync.Mutex // guards ids
	ids map[string]*transactionalID
}

// identity is a producer id with its epoch.
type identity struct {
	id    int64
	epoch int16
}

// transactionalID is the state of a transactional id.
type transactionalID struct {
	seen   identity // the newest identity that was used
	fenced identity // the newest identity that was used before the last InitProducerID
}

// stale records that a producer used its identity. It reports whether a newer producer has
// begun since the first use. The caller holds mu.
func (s *fencing) stale(transactional string, used identity) bool {
	known := s.ids[transactional]
	switch {
	case known == nil:
		s.ids[transactional] = &transactionalID{seen: used, fenced: identity{id: -1}}
		return false
	case used.id != known.seen.id: // a new id replaces one whose epochs are used up
		known.seen, known.fenced = used, identity{id: -1}
		return false
	case used.epoch > known.seen.epoch:
		known.seen = used
	}
	return used.id == known.fenced.id && used.epoch <= known.fenced.epoch
}

func (s *fencing) initProducerID(request kmsg.Request) kmsg.Response {
	r := request.(*kmsg.InitProducerIDRequest)
	if r.TransactionalID == nil {
		return nil
	}
	if r.ProducerID < 0 {
		// A rejected InitProducerID fences older producers too: Apache Kafka fences
		// first, and then makes the new producer wait.
		if known := s.ids[*r.TransactionalID]; known != nil {
			known.fenced = known.seen
		}
		return nil
	}
	response := r.ResponseKind().(*kmsg.InitProducerIDResponse)
	response.ErrorCode = kerr.ProducerFenced.Code
	return response
}

func (s *fencing) endTxn(request kmsg.Request) kmsg.Response {
	r := request.(*kmsg.EndTxnRequest)
	if !s.stale(r.TransactionalID, identity{r.ProducerID, r.ProducerEpoch}) {
		return nil
	}
	response := r.ResponseKind().(*kmsg.EndTxnResponse)
	response.ErrorCode = kerr.ProducerFenced.Code
	return response
}

func (s *fencing) produce(request kmsg.Request) kmsg.Response {
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

// staleBatches checks every batch: all are of one producer.
func (s *fencing) staleBatches(r *kmsg.ProduceRequest) bool {
	stale := false
	for _, topic := range r.Topics {
		for _, partition := range topic.Partitions {
			b := partition.Records
			if len(b) < batchHeader {
				continue // kfake returns the error
			}
			stale = s.stale(*r.TransactionID, identity{
				id:    int64(binary.BigEndian.Uint64(b[batchProducerID:])),
				epoch: int16(binary.BigEndian.Uint16(b[batchProducerEpoch:])),
			}) || stale
		}
	}
	return stale
}
