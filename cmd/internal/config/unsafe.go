package config

// Unsafe lists the settings of the process that disable a protection, except for those of
// HTTP.
func (s *Settings) Unsafe() []string {
	list := s.Cursor.Unsafe()
	if s.ClearTraces != "" {
		list = append(list, s.ClearTraces)
	}
	return list
}

// Unsafe lists the settings that disable a protection.
func (st *Stream) Unsafe() []string {
	var list []string
	add := func(on bool, name string) {
		if on {
			list = append(list, name)
		}
	}
	add(st.Export.InsecureHTTP, "EXPORT_INSECURE_HTTP")
	add(st.Export.LinkLocal, "EXPORT_ALLOW_LINK_LOCAL")
	list = append(list, st.Kafka.Unsafe()...)
	add(st.Engine.OnCheckpointLoss == "redis", "BRIDGE_ON_CHECKPOINT_LOSS")
	return list
}

// UnsafeReason says why a setting that Unsafe lists is unsafe, and what to do. why
// continues a sentence that begins with the name.
func UnsafeReason(name string) (why, remedy string) {
	switch name {
	case "HTTP_ADDR":
		return "lets every client that reaches it read status, history and log: only actions take the token",
			"set HTTP_TOKENS_FILE or HTTP_OIDC_ISSUER, so that reading requires a token too, " +
				"restrict who reaches it by a firewall or network policy, or set HTTP_ADDR=127.0.0.1:8080"
	case "HTTP_SHOW_EVENTS":
		return "exposes events to every client", "unset it, or set HTTP_ADDR=127.0.0.1:8080"
	case "KAFKA_TLS_ENABLED":
		return "is off: events are sent in clear text", "set KAFKA_TLS_ENABLED=true, unless the network encrypts"
	case otlpEndpoint, otlpTracesEndpoint:
		return "has no TLS: traces, and the headers that authorize them, are sent in clear text",
			"write https://, unless the network encrypts"
	case "REDIS_URL":
		return "has no TLS: cursors and the password are sent in clear text", "write rediss://, unless the network encrypts"
	}
	return "disables a protection", "use it in tests only"
}
