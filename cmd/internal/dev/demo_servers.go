package dev

import (
	"errors"
	"slices"

	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/dev/embedded"
	"exportbridge/cursorstore"
)

// What stands for a server that the demo is yet to start.
const (
	notStartedAddr  = "127.0.0.1:1"
	notStartedURL   = "http://" + notStartedAddr
	notStartedRedis = "redis://" + notStartedAddr + "/0"
)

// demoPlan says how the demo starts its servers. An address that is empty is
// the usual one, or a free one where that is taken.
type demoPlan struct {
	dataDir   string
	kafkaAddr string
	redisAddr string
	apiAddr   string
	simulator exportsim.Config
}

// demoServers are the servers in the demo's process.
type demoServers struct {
	kafka *embedded.Kafka
	redis *embedded.Redis
	api   *embedded.HTTP
	sim   *exportsim.Handler
}

// startServers starts the servers that the settings have none for, and puts
// their addresses into the settings.
func startServers(s *config.Settings, plan *demoPlan) (_ *demoServers, err error) {
	v := new(demoServers)
	defer func() {
		if err != nil {
			err = errors.Join(err, v.close())
		}
	}()
	for i := range s.Streams {
		st := &s.Streams[i]
		if slices.Equal(st.Kafka.Brokers, []string{notStartedAddr}) {
			if v.kafka == nil {
				if v.kafka, err = embedded.StartKafka(plan.kafkaAddr, plan.dataDir); err != nil {
					return nil, err
				}
			}
			st.Kafka.Brokers, st.Kafka.CreateTopics = []string{v.kafka.Addr}, true
		}
		if st.Export.URL == notStartedURL {
			if err := v.startAPI(plan); err != nil {
				return nil, err
			}
			st.Export.URL = v.api.URL
			st.Engine.Origin.Request = st.Export.Fingerprint(s.Preset(st.Name))
		}
	}
	if s.Cursor.URL == notStartedRedis {
		if v.redis, err = embedded.StartRedis(plan.redisAddr); err != nil {
			return nil, err
		}
		s.Cursor.URL = cursorstore.URL(v.redis.URL)
	}
	return v, nil
}

// startAPI starts the export API, once.
func (v *demoServers) startAPI(plan *demoPlan) (err error) {
	if v.api != nil {
		return nil
	}
	if v.sim, err = exportsim.New(plan.simulator); err != nil {
		return err
	}
	v.api, err = embedded.StartSimulator(v.sim, plan.apiAddr)
	return err
}

// close stops them in the order in which they are used.
func (v *demoServers) close() error {
	var errs []error
	if v.sim != nil {
		v.sim.Close() // which ends stalled requests
	}
	if v.api != nil {
		errs = append(errs, v.api.Close())
	}
	if v.redis != nil {
		errs = append(errs, v.redis.Close())
	}
	if v.kafka != nil {
		errs = append(errs, v.kafka.Close())
	}
	return errors.Join(errs...)
}
