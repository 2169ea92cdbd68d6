package ami

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// cloud stands for EC2: it keeps snapshots as the EBS direct APIs describe
// them, and refuses what they refuse.
type cloud struct {
	mu       sync.Mutex
	blocks   map[int64][]byte
	volume   int
	complete bool
	looks    int
	image    map[string]string
	requests int
	busy     func(n int, r *http.Request) bool // answer 503
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	body, err := io.ReadAll(r.Body)
	auth := r.Header.Get("Authorization")
	switch {
	case err != nil:
		return
	case !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential=AKID/") ||
		!strings.Contains(auth, "/eu-central-1/") || !strings.Contains(auth, "x-amz-content-sha256") ||
		r.Header.Get("X-Amz-Security-Token") != "TOKEN":
		http.Error(w, "not signed", http.StatusForbidden)
		return
	case c.busy != nil && c.busy(c.requests, r):
		http.Error(w, `{"Reason":"busy"}`, http.StatusServiceUnavailable)
		return
	}

	fail := func(text string) { http.Error(w, text, http.StatusBadRequest) }
	sum := sha256.Sum256(body)
	switch p := r.URL.Path; {
	case r.Method == http.MethodPost && p == "/snapshots":
		var in struct{ VolumeSize int }
		if json.Unmarshal(body, &in) != nil || in.VolumeSize < 1 {
			fail("volume size")
			return
		}

		c.volume, c.blocks = in.VolumeSize, map[int64][]byte{}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"SnapshotId":"snap-1","BlockSize":524288}`)
	case r.Method == http.MethodPut && strings.HasPrefix(p, "/snapshots/snap-1/blocks/"):
		n, err := strconv.ParseInt(strings.TrimPrefix(p, "/snapshots/snap-1/blocks/"), 10, 64)
		if err != nil || len(body) != blockSize || r.Header.Get("X-Amz-Data-Length") != "524288" ||
			r.Header.Get("X-Amz-Checksum-Algorithm") != "SHA256" ||
			r.Header.Get("X-Amz-Checksum") != base64.StdEncoding.EncodeToString(sum[:]) || (n+
			1)*blockSize > int64(c.volume)<<30 {
			fail("block")
			return
		}

		c.blocks[n] = body
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{}`)
	case r.Method == http.MethodPost && p == "/snapshots/completion/snap-1":
		var order []int64
		for n := range c.blocks {
			order = append(order, n)
		}

		slices.Sort(order)
		var all []byte
		for _, n := range order {
			s := sha256.Sum256(c.blocks[n])
			all = append(all, s[:]...)
		}

		whole := sha256.Sum256(all)
		if r.Header.Get("X-Amz-Changedblockscount") != strconv.Itoa(len(order)) &&
			r.Header.Get("X-Amz-ChangedBlocksCount") != strconv.Itoa(len(order)) ||
			r.Header.Get("X-Amz-Checksum") != base64.StdEncoding.EncodeToString(whole[:]) {
			fail("digest of the snapshot")
			return
		}

		c.complete = true
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"Status":"pending"}`)
	case p == "/":
		r.Body = io.NopCloser(bytes.NewReader(body))
		_ = r.ParseForm()
		switch r.PostForm.Get("Action") {
		case "DescribeSnapshots":
			state := "pending"
			c.looks++
			if c.looks > 2 && c.complete {
				state = "completed"
			}

			fmt.Fprintf(w,
				`<DescribeSnapshotsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><snapshotSet><item><snapshotId>snap-1</snapshotId><status>%s</status></item></snapshotSet></DescribeSnapshotsResponse>`,
				state)
		case "RegisterImage":
			c.image = map[string]string{}
			for k := range r.PostForm {
				c.image[k] = r.PostForm.Get(k)
			}
			fmt.Fprint(w,
				`<RegisterImageResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><imageId>ami-1</imageId></RegisterImageResponse>`)
		default:
			fail("action")
		}
	default:
		fail("path " + p)
	}
}

func client(t *testing.T, c *cloud) *Client {
	t.Helper()
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	cl, err := New(Config{
		Region:      "eu-central-1",
		Credentials: aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET", SessionToken: "TOKEN"},
		EBS:         s.URL,
		EC2:         s.URL,
		Workers:     3,
		Pause:       time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}

	return cl
}

// disk has data in its first, fifth and last, shorter block.
func disk() []byte {
	b := make([]byte, 8*blockSize+1024)
	copy(b, "first")
	copy(b[4*blockSize+7:], "fifth")
	copy(b[8*blockSize:], "last")
	return b
}

func TestUpload(t *testing.T) {
	failed := map[string]int{}
	c := &cloud{busy: func(n int, r *http.Request) bool { // each request is refused twice
		failed[r.Method+r.URL.Path]++
		return failed[r.Method+r.URL.Path] <= 2
	}}

	d := disk()
	image, snapshot, err := client(t, c).Upload(context.Background(), bytes.NewReader(d), int64(len(d)),
		Image{Name: "saltern-1", VolumeGiB: 8})
	if err != nil || image != "ami-1" || snapshot != "snap-1" {
		t.Fatal(image, snapshot, err)
	}

	if len(c.blocks) != 3 || c.volume != 8 {
		t.Errorf("%d blocks in %d GiB", len(c.blocks), c.volume)
	}

	back := make([]byte, 9*blockSize)
	for n, b := range c.blocks {
		copy(back[n*blockSize:], b)
	}

	if !bytes.Equal(back[:len(d)], d) {
		t.Error("EC2 holds another disk")
	}

	for k, want := range map[string]string{
		"BootMode":                            "uefi-preferred",
		"ImdsSupport":                         "v2.0",
		"EnaSupport":                          "true",
		"Architecture":                        "x86_64",
		"BlockDeviceMapping.1.Ebs.SnapshotId": "snap-1",
		"Name":                                "saltern-1",
	} {
		if c.image[k] != want {
			t.Errorf("%s is %q", k, c.image[k])
		}
	}
}

func TestUploadFails(t *testing.T) {
	d := disk()
	for name, c := range map[string]*cloud{
		"always busy": {busy: func(int, *http.Request) bool { return true }},
		"blocks lost": {busy: func(_ int, r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/blocks/4") }},
		"no image":    {busy: func(_ int, r *http.Request) bool { return r.URL.Path == "/" }},
	} {
		if image, _, err := client(t, c).Upload(context.Background(), bytes.NewReader(d), int64(len(d)),
			Image{Name: "x"}); err == nil || image != "" {
			t.Errorf("%s: %q %v", name, image, err)
		}
		if name == "blocks lost" && c.complete {
			t.Error("a snapshot with a hole was completed")
		}
	}

	if _, err := New(Config{Region: "x"}); err == nil {
		t.Error("no credentials were enough")
	}

	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, _, err := client(t, &cloud{}).Upload(ctx, bytes.NewReader(d), int64(len(d)), Image{}); err == nil {
		t.Error("went on after the end")
	}
}
