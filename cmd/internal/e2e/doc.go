// Package e2e holds the end-to-end tests: both programs as binaries against
// servers, the scripts of the command line, the documents' commands, and the
// files of the deployment.
package e2e
