package ops

// MaxConnections and ProbeHandler are for the tests.
const MaxConnections = maxConnections

var ProbeHandler = probeHandler
