package ami

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"saltern/internal/pause"
	"saltern/internal/printable"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// maxAnswer bounds an answer in bytes.
const maxAnswer = 1 << 20

// tries is how often a request is sent while the service is busy or unreachable.
const tries = 6

// callEBS sends a request to the EBS direct APIs. body is bytes, a value for JSON, or nil.
func (c *Client) callEBS(ctx context.Context, method, path string, h http.Header, body, answer any) error {
	var payload []byte
	kind := "application/octet-stream"
	switch b := body.(type) {
	case nil:
	case []byte:
		payload = b
	default:
		var err error
		if payload, err = json.Marshal(b); err != nil {
			return err
		}
		kind = "application/json"
	}

	text, err := c.signedRequest(ctx, "ebs", method, c.cfg.EBS+path, kind, h, payload)
	if err != nil || answer == nil {
		return err
	}

	return json.Unmarshal(text, answer)
}

// callEC2 sends a request to EC2's query API.
func (c *Client) callEC2(ctx context.Context, v url.Values, answer any) error {
	v.Set("Version", "2016-11-15")
	text, err := c.signedRequest(ctx, "ec2", http.MethodPost, c.cfg.EC2+"/",
		"application/x-www-form-urlencoded; charset=utf-8", nil, []byte(v.Encode()))
	if err != nil {
		return err
	}
	return xml.Unmarshal(text, answer)
}

// signedRequest sends a signed request and returns the answer. It retries with growing pauses while
// the service is busy, broken or unreachable. Every request may be repeated, because blocks are
// written by number.
func (c *Client) signedRequest(
	ctx context.Context,
	service, method, address, kind string,
	h http.Header,
	payload []byte,
) ([]byte, error) {
	wait := c.cfg.Pause
	for n := 1; ; n++ {
		text, again, err := c.requestOnce(ctx, service, method, address, kind, h, payload)
		if err == nil || !again || n == tries || ctx.Err() != nil {
			return text, err
		}
		if pause.For(ctx, wait) != nil {
			return nil, errors.Join(err, ctx.Err())
		}
		wait *= 2
	}
}

func (c *Client) requestOnce(
	ctx context.Context,
	service, method, address, kind string,
	h http.Header,
	payload []byte,
) (text []byte, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(payload))
	if err != nil {
		return nil, false, err
	}

	maps.Copy(req.Header, h)
	req.Header.Set("Content-Type", kind)
	sum := sha256.Sum256(payload)
	digest := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", digest)

	if err := v4.NewSigner().SignHTTP(ctx, c.cfg.Credentials, req, digest, service, c.cfg.Region,
		time.Now()); err != nil {
		return nil, false, err
	}

	res, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return nil, true, err
	}
	defer res.Body.Close()

	text, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, true, err
	}
	if res.StatusCode/100 != 2 {
		busy := res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500 ||
			strings.Contains(string(text), "RequestLimitExceeded")
		return nil, busy, fmt.Errorf("%s: %s", res.Status, printable.Brief(string(text), 500))
	}

	return text, false, nil
}
