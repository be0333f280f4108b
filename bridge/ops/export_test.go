package ops

// MaxConnections is for the tests.
const MaxConnections = maxConnections
