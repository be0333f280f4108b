package bridge_test

import (
	"exportbridge/bridge"
	"testing"
)

// A name counts as that of a credential by its words. A parameter that sorts, selects or leads to
// the next page does not count.
func TestIsCredential(t *testing.T) {
	t.Parallel()
	for name, credential := range map[string]bool{
		"api_key": true, "apiKey": true, "X-Auth-Token": true, "client.secret": true, "accessToken": true, "PASSWORD": true,
		"apikey": true, "api-key": true, "X-Api-Key": true, "subscription-key": true, "access-token": true,
		"session_token": true, "access_key": true, "AWSAccessKeyId": true, "api_secret": true, "client-secret": true,
		"jwt": true, "hapikey": true, "key": true, "token": true, "accesstoken": true, "clientsecret": true, "authkey": true,
		"auth": true, "x-auth": true, "authorization": true, "sig": true, "X-Amz-Signature": true, "X-Amz-Credential": true,
		"user_credentials": true, "passphrase": true, "passwd": true, "pwd": true, "pass": true, "/auth/token": true,
		"auth[password]": true, "filter[token]": true, "secret_id": true, "token2": true,
		"HMACKey": true, "SASKey": true, "sharedAWSKey": true,
		"author": false, "keyword": false, "tokens": false, "monkey": false, "": false, "sort_key": false, "sortKey": false,
		"/order/key": false, "projectKey": false, "keywords": false, "authenticated": false, "authors": false,
		"tokens_used": false, "max_tokens": false, "auth_type": false, "oauth": false, "signature_version": false,
		"credential_type": false, "significant": false, "passed": false, "bypass": false, "secretary": false,
		"page_token": false, "nextPageToken": false, "pagetoken": false, "$skiptoken": false, "syncToken": false,
		"/page/token": false, "continuation-token": false, "monkeys": false, "turkey": false, "session": false,
	} {
		if bridge.IsCredential(name) != credential {
			t.Errorf("%q is a credential: %v", name, !credential)
		}
	}
	for name, credential := range map[string]bool{
		"Authorization": true, "Cookie": true, "X-Session": true, "CB-ACCESS-PASSPHRASE": true, "X-Jwt": true,
		"X-Credential": true, "X-Sig": true, "X-Mbx-Apikey": true, "Dd-Application-Key": true,
		"Accept": false, "X-Tenant-Id": false, "X-Passenger": false, "X-Request-Id": false,
	} {
		if bridge.IsCredentialHeader(name) != credential {
			t.Errorf("the header %q is a credential: %v", name, !credential)
		}
	}
}
