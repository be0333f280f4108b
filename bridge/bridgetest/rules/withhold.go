package rules

// withhold keeps the pages of a batch until its commit. The rules about the time of sending
// need that: their patches send events themselves.
var withhold = []Edit{
	{"bridge/kafkasink/publish.go", `
 func (s *session) send(ctx context.Context, page *bridge.Page) error {
+	if protocol.Broken("save-before-commit") || protocol.Broken("heal-with-tryabort") {
+		s.withheld = append(s.withheld, page)
+		return nil
+	}
`},
	{"bridge/kafkasink/transaction.go", `
 const endGrace = time.Second
+
+type withheldPages []*bridge.Page
+
+func (s *session) releaseWithheld() {
+	for _, page := range s.withheld {
+		page.Release()
+	}
+	s.withheld = nil
+}
+
+func (s *session) sendWithheld(ctx context.Context) error {
+	for _, page := range s.withheld {
+		if err := s.dispatch(ctx, ownRecords(), page); err != nil {
+			return err
+		}
+	}
+	return nil
+}
`},
	{"bridge/kafkasink/session.go", `
+	withheld withheldPages
 	receipt bridge.Receipt
`},
	{"bridge/kafkasink/session.go", `
 		<-s.open.done
 	}
+	s.releaseWithheld()
 }
`},
}
