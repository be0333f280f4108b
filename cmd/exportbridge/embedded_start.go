package main

import (
	"errors"

	"exportbridge/bridge/exportapi/exportsim"
)

// demoPlan says which servers the demo starts, and how. An address that is
// empty is the usual one, or a free one where that is taken.
type demoPlan struct {
	withoutKafka, withoutRedis, withoutAPI bool

	dataDir   string
	kafkaAddr string
	redisAddr string
	apiAddr   string
	simulator exportsim.Config
}

// demoServers are the servers in the demo's process.
type demoServers struct {
	kafka *embeddedKafka
	redis *embeddedRedis
	api   *embeddedHTTP
	sim   *exportsim.Handler
}

// startServers starts what the plan wants.
func startServers(plan *demoPlan) (_ *demoServers, err error) {
	v := new(demoServers)
	defer func() {
		if err != nil {
			err = errors.Join(err, v.close())
		}
	}()
	if !plan.withoutKafka {
		if v.kafka, err = startEmbeddedKafka(plan.kafkaAddr, plan.dataDir); err != nil {
			return nil, err
		}
	}
	if !plan.withoutRedis {
		if v.redis, err = startEmbeddedRedis(plan.redisAddr, plan.dataDir); err != nil {
			return nil, err
		}
	}
	if !plan.withoutAPI {
		if v.sim, err = exportsim.New(plan.simulator); err != nil {
			return nil, err
		}
		if v.api, err = startEmbeddedSimulator(v.sim, plan.apiAddr); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// settings are what a bridge needs to use the servers.
func (v *demoServers) settings() map[string]string {
	set := make(map[string]string)
	if v.kafka != nil {
		set["KAFKA_BROKERS"] = v.kafka.Addr
	}
	if v.redis != nil {
		set["REDIS_URL"] = v.redis.URL
	}
	if v.api != nil {
		set["EXPORT_URL"], set["EXPORT_API_KEY"] = v.api.URL, "any"
	}
	return set
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
