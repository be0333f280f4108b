package kafkasink

// AgeSettings makes the session's knowledge of its topics too old to be used
// without a look.
func (s *Sink) AgeSettings() { s.session.read = s.session.read.Add(-settingsAge) }
