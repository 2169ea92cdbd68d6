package userdata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"saltern/pause"
	"saltern/supervisor/internal/probe"
)

// ec2 asks Amazon's instance metadata service, version 2 only: a token is
// fetched with PUT first, which a request that somebody else makes us send
// cannot do (docs.aws.amazon.com, "Use IMDSv2").
func (p Places) ec2(ctx context.Context) ([]byte, error) {
	if !p.onEC2() {
		return nil, nil
	}
	// The network of a machine that has just booted may come up late.
	var last error
	for range imdsTries {
		text, err := p.imds(ctx)
		if err == nil {
			return text, nil
		}
		last = err
		if pause.For(ctx, imdsPause) != nil {
			return nil, last
		}
	}
	return nil, last
}

const (
	imdsTries = 20
	imdsPause = 3 * time.Second
	imdsTakes = 5 * time.Second
	tokenTTL  = "300"
)

// onEC2 tells by the firmware's words whether there is anybody to ask. Without
// the question, machines elsewhere would wait for an answer at each boot.
func (p Places) onEC2() bool {
	if p.DMI == "" {
		return true
	}
	return probe.OnEC2(p.DMI)
}

func (p Places) imds(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, imdsTakes)
	defer cancel()
	c := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	token, code, err := imdsGet(ctx, c, http.MethodPut, p.EC2+"/latest/api/token", map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": tokenTTL}, 1024)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK || len(token) == 0 {
		return nil, fmt.Errorf("the metadata service gives no token (%d); its hop limit may be too low, or it is switched off", code)
	}
	text, code, err := imdsGet(ctx, c, http.MethodGet, p.EC2+"/latest/user-data", map[string]string{"X-aws-ec2-metadata-token": string(token)}, MaxText)
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusNotFound:
		return nil, nil // none was given
	case code != http.StatusOK:
		return nil, fmt.Errorf("the metadata service answers %d", code)
	}
	return text, nil
}

func imdsGet(ctx context.Context, c *http.Client, method, url string, header map[string]string, limit int64) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, 0, err
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = errors.New("the answer of the metadata service is too large")
	}
	return b, resp.StatusCode, err
}
