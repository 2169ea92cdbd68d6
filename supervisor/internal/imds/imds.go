// Package imds reads from Amazon's instance metadata service, version 2 only: it first fetches a
// token with PUT, which an SSRF attacker cannot do (docs.aws.amazon.com, "Use IMDSv2").
package imds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Address is the service's address on EC2.
const Address = "http://169.254.169.254"

const (
	tokenTTL = "300"
	maxToken = 1 << 10
	maxKeys  = 16 << 10
)

// Get returns the text at a path of the service, such as user-data. ok is false if the path has no
// text. A text longer than maxBytes is an error.
func Get(ctx context.Context, address, path string, maxBytes int64) (text []byte, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := &http.Client{
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	token, code, err := getBounded(ctx, c, http.MethodPut, address+"/latest/api/token",
		"X-aws-ec2-metadata-token-ttl-seconds", tokenTTL, maxToken)
	if err != nil {
		return nil, false, err
	}
	if code != http.StatusOK || len(token) == 0 {
		return nil, false, fmt.Errorf("the metadata service gives no token (%d); "+
			"its hop limit may be too low, or it is switched off",
			code)
	}

	text, code, err = getBounded(ctx, c, http.MethodGet, address+"/latest/"+path, "X-aws-ec2-metadata-token",
		string(token), maxBytes)
	switch {
	case err != nil:
		return nil, false, err
	case code == http.StatusNotFound:
		return nil, false, nil
	case code != http.StatusOK:
		return nil, false, fmt.Errorf("the metadata service answers %d", code)
	}

	return text, true, nil
}

func getBounded(ctx context.Context, c *http.Client, method, url, header, value string, maxBytes int64) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, 0, err
	}

	req.Header.Set(header, value)
	resp, err := c.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()

	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBytes+1))
	if err == nil && int64(len(b)) > maxBytes {
		err = errors.New("the answer of the metadata service is too large")
	}

	return b, resp.StatusCode, err
}

// Keys holds the temporary keys of a machine's role.
type Keys struct {
	AccessKeyID     string `json:"AccessKeyId"`
	SecretAccessKey string
	Token           string
	Expiration      time.Time
}

// roleName matches role names that IAM accepts.
var roleName = regexp.MustCompile(`^[A-Za-z0-9+=,.@_-]{1,128}$`)

// RoleKeys returns the keys of the machine's role.
func RoleKeys(ctx context.Context, address string) (k Keys, err error) {
	const path = "meta-data/iam/security-credentials/"
	text, ok, err := Get(ctx, address, path, maxKeys)
	if err != nil {
		return k, fmt.Errorf("ask for the machine's role: %w", err)
	}

	role, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if !ok || role == "" {
		return k, errors.New("this machine has no role: give it an instance profile")
	}
	if !roleName.MatchString(role) {
		return k, fmt.Errorf("the metadata service gives %.64q for the machine's role", role)
	}

	text, ok, err = Get(ctx, address, path+role, maxKeys)
	if err == nil && !ok {
		err = errors.New("there are none")
	}

	if err == nil {
		err = json.Unmarshal(text, &k)
	}

	if err == nil && (k.AccessKeyID == "" || k.SecretAccessKey == "" || k.Expiration.IsZero()) {
		err = errors.New("they are not complete")
	}

	if err != nil {
		return Keys{}, fmt.Errorf("ask for the keys of role %s: %w", role, err)
	}

	return k, nil
}
