package dev

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/dev/embedded"
	"exportbridge/cursorstore"
)

// The address of a server that the demo has not started yet.
const (
	notStartedAddr  = "127.0.0.1:1"
	notStartedURL   = "http://" + notStartedAddr
	notStartedRedis = "redis://" + notStartedAddr + "/0"
)

// demoPlan says how the demo starts its servers. An empty address is the default, or a
// free one if that is taken.
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

// startServers starts the servers with a notStarted address, and puts their addresses
// into the settings.
func startServers(s *config.Settings, plan *demoPlan) (_ *demoServers, err error) {
	if err := plan.check(s); err != nil {
		return nil, err
	}
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

// check returns an error if the plan has the address of a server that the demo does not start.
func (p *demoPlan) check(s *config.Settings) error {
	kafka, api := false, false
	for i := range s.Streams {
		kafka = kafka || slices.Equal(s.Streams[i].Kafka.Brokers, []string{notStartedAddr})
		api = api || s.Streams[i].Export.URL == notStartedURL
	}
	for _, server := range []struct {
		address, flag, setting string
		starts                 bool
	}{
		{p.kafkaAddr, "--kafka-addr", "KAFKA_BROKERS", kafka}, {p.apiAddr, "--api-addr", "EXPORT_URL", api},
		{p.redisAddr, "--redis-addr", "REDIS_URL", s.Cursor.URL == notStartedRedis},
	} {
		if server.address != "" && !server.starts {
			return cli.WrongUsage("remove one of them", "%s is the address of a server that the demo does not start, "+
				"because %s names another one", server.flag, server.setting)
		}
	}
	return nil
}

// startAPI starts the export API, once. It saves that the export grows, for a demo after one that
// was killed.
func (d *demoServers) startAPI(plan *demoPlan) (err error) {
	if d.api != nil {
		return nil
	}
	sim := &plan.simulator
	sim.Since = cmp.Or(sim.Since, time.Now())
	if d.sim, err = exportsim.New(*sim); err != nil {
		return err
	}
	if d.api, err = embedded.StartSimulator(d.sim, plan.apiAddr); err != nil || plan.dataDir == "" {
		return err
	}
	return saveStock(plan.dataDir, demoStock{sim.Start, sim.Every, sim.Events, sim.Since})
}

// close stops the servers: the API before Redis, and Kafka last.
func (d *demoServers) close() error {
	var errs []error
	if d.sim != nil {
		d.sim.Close() // ends stalled requests
	}
	if d.api != nil {
		errs = append(errs, d.api.Close())
	}
	if d.redis != nil {
		errs = append(errs, d.redis.Close())
	}
	if d.kafka != nil {
		errs = append(errs, d.kafka.Close())
	}
	return errors.Join(errs...)
}
