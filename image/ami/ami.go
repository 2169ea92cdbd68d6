// Package ami creates an EC2 image from a raw disk without an auxiliary instance: it uploads the
// disk's blocks into a snapshot through the EBS direct APIs, and registers the snapshot as an
// image.
//
// It uploads only blocks that are not zero. Every block carries its SHA-256, and the request that
// completes the snapshot carries the digest of all blocks. So EC2 has either exactly the disk, or
// no snapshot.
package ami

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/pause"

	"golang.org/x/sync/errgroup"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// blockSize is the block size of the EBS direct APIs, in bytes.
const blockSize = 512 << 10

// Config says how to access EC2.
type Config struct {
	Region      string
	Credentials aws.Credentials
	// EBS and EC2 are the addresses of the services. "" means those of the region.
	EBS, EC2 string
	HTTP     *http.Client  // nil means a client with a time limit
	Log      *slog.Logger  // may be nil
	Workers  int           // number of concurrent uploads of blocks; 0 means 16
	Pause    time.Duration // time before the first retry, and between two requests about the snapshot; 0 means 1 s
}

// Image describes the image to register.
type Image struct {
	Name        string
	Description string
	// VolumeGiB is the size of the root volume. 0 means the size of the disk.
	VolumeGiB int
}

// Client uploads images. Its methods are safe for concurrent use.
type Client struct{ cfg Config }

// New creates a client. It sends no request.
func New(cfg Config) (*Client, error) {
	if cfg.Region == "" || cfg.Credentials.AccessKeyID == "" || cfg.Credentials.SecretAccessKey == "" {
		return nil, errors.New("ami: region and credentials are needed: AWS_REGION, AWS_ACCESS_KEY_ID, " +
			"AWS_SECRET_ACCESS_KEY and perhaps AWS_SESSION_TOKEN (aws configure export-credentials --format " +
			"env)")
	}

	if cfg.EBS == "" {
		cfg.EBS = "https://ebs." + cfg.Region + ".amazonaws.com"
	}

	if cfg.EC2 == "" {
		cfg.EC2 = "https://ec2." + cfg.Region + ".amazonaws.com"
	}

	cfg.HTTP = cmp.Or(cfg.HTTP, &http.Client{Timeout: 2 * time.Minute})
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Workers = cmp.Or(cfg.Workers, 16)
	cfg.Pause = cmp.Or(cfg.Pause, time.Second)

	return &Client{cfg}, nil
}

// Upload creates a snapshot of a disk of size bytes and registers the snapshot as an image. It
// returns the identifiers of image and snapshot. EC2 removes an unfinished snapshot after a while.
func (c *Client) Upload(
	ctx context.Context,
	disk io.ReaderAt,
	size int64,
	img Image,
) (image, snapshot string, err error) {
	gib := int((size + 1<<30 - 1) >> 30)
	img.VolumeGiB = cmp.Or(img.VolumeGiB, gib)
	if img.VolumeGiB < gib {
		return "", "", fmt.Errorf("ami: a volume of %d GiB does not hold a disk of %d GiB", img.VolumeGiB, gib)
	}

	var start struct {
		SnapshotID string `json:"SnapshotId"`
		BlockSize  int64  `json:"BlockSize"`
	}

	body := map[string]any{"VolumeSize": img.VolumeGiB, "Description": img.Description, "Timeout": 60,
		"Tags": []map[string]string{{"Key": "Name", "Value": img.Name}}}
	if err := c.callEBS(ctx, http.MethodPost, "/snapshots", nil, body, &start); err != nil {
		return "", "", fmt.Errorf("ami: begin a snapshot: %w", err)
	}
	if start.BlockSize != blockSize || start.SnapshotID == "" {
		return "", "", fmt.Errorf("ami: EC2 wants blocks of %d bytes, %d are known here", start.BlockSize, blockSize)
	}

	c.cfg.Log.Info("snapshot begun", "snapshot", start.SnapshotID)
	sums, err := c.blocks(ctx, start.SnapshotID, disk, size)
	if err != nil {
		return "", start.SnapshotID, fmt.Errorf("ami: %w", err)
	}

	if err := c.complete(ctx, start.SnapshotID, sums); err != nil {
		return "", start.SnapshotID, fmt.Errorf("ami: complete snapshot %s: %w", start.SnapshotID, err)
	}

	if err := c.awaitSnapshot(ctx, start.SnapshotID); err != nil {
		return "", start.SnapshotID, fmt.Errorf("ami: %w", err)
	}

	image, err = c.register(ctx, start.SnapshotID, img)
	if err != nil {
		return "", start.SnapshotID, fmt.Errorf("ami: register snapshot %s: %w", start.SnapshotID, err)
	}

	return image, start.SnapshotID, nil
}

// blocks sends the blocks that are not zero, and returns the digests by block number.
func (c *Client) blocks(ctx context.Context, id string, disk io.ReaderAt, size int64) (map[int64][32]byte, error) {
	var mu sync.Mutex
	sums := map[int64][32]byte{}
	var sent atomic.Int64
	outer := ctx
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.cfg.Workers)
	pool := sync.Pool{New: func() any { b := make([]byte, blockSize); return &b }}
	zero := make([]byte, blockSize)
	for n := int64(0); n*blockSize < size && ctx.Err() == nil; n++ {
		buf := pool.Get().(*[]byte)
		got, err := disk.ReadAt(*buf, n*blockSize)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, errors.Join(fmt.Errorf("read the disk: %w", err), g.Wait())
		}

		clear((*buf)[got:])
		if bytes.Equal(*buf, zero) {
			pool.Put(buf)
			continue
		}

		g.Go(func() error {
			defer pool.Put(buf)
			sum := sha256.Sum256(*buf)
			h := http.Header{
				"X-Amz-Data-Length":        {strconv.Itoa(blockSize)},
				"X-Amz-Checksum":           {base64.StdEncoding.EncodeToString(sum[:])},
				"X-Amz-Checksum-Algorithm": {"SHA256"},
			}

			if err := c.callEBS(ctx, http.MethodPut,
				"/snapshots/"+url.PathEscape(id)+"/blocks/"+strconv.FormatInt(n, 10), h, *buf, nil); err != nil {
				return fmt.Errorf("send block %d: %w", n, err)
			}

			mu.Lock()
			sums[n] = sum
			mu.Unlock()

			if k := sent.Add(1); k%100 == 0 {
				c.cfg.Log.Info("sent", "blocks", k, "mib", k/2)
			}

			return nil
		})
	}

	if err := g.Wait(); err != nil {
		return nil, err
	}

	return sums, outer.Err()
}

// complete closes a snapshot with a digest over the digests of all blocks in the order of their
// numbers ("LINEAR").
func (c *Client) complete(ctx context.Context, id string, sums map[int64][32]byte) error {
	order := slices.Sorted(maps.Keys(sums))
	all := sha256.New()
	for _, n := range order {
		s := sums[n]
		all.Write(s[:])
	}
	h := http.Header{
		"X-Amz-ChangedBlocksCount":          {strconv.Itoa(len(sums))},
		"X-Amz-Checksum":                    {base64.StdEncoding.EncodeToString(all.Sum(nil))},
		"X-Amz-Checksum-Algorithm":          {"SHA256"},
		"X-Amz-Checksum-Aggregation-Method": {"LINEAR"},
	}
	return c.callEBS(ctx, http.MethodPost, "/snapshots/completion/"+url.PathEscape(id), h, nil, nil)
}

// awaitSnapshot waits until EC2 reports the snapshot as complete.
func (c *Client) awaitSnapshot(ctx context.Context, id string) error {
	for {
		var r struct {
			States []string `xml:"snapshotSet>item>status"`
		}
		if err := c.callEC2(ctx, url.Values{"Action": {"DescribeSnapshots"}, "SnapshotId.1": {id}}, &r); err != nil {
			return fmt.Errorf("ask for snapshot %s: %w", id, err)
		}

		switch {
		case len(r.States) == 1 && r.States[0] == "completed":
			return nil
		case len(r.States) == 1 && r.States[0] == "error":
			return fmt.Errorf("EC2 could not complete snapshot %s", id)
		}

		if err := pause.For(ctx, c.cfg.Pause); err != nil {
			return fmt.Errorf("wait for snapshot %s: %w", id, err)
		}
	}
}

// register creates the image and returns its identifier. The image boots with UEFI where the
// instance type supports it, and its instances use only the second version of the metadata service.
func (c *Client) register(ctx context.Context, snapshot string, img Image) (string, error) {
	const device = "/dev/xvda"
	v := url.Values{
		"Action":             {"RegisterImage"},
		"Name":               {img.Name},
		"Description":        {img.Description},
		"Architecture":       {"x86_64"},
		"VirtualizationType": {"hvm"},
		"RootDeviceName":     {device}, "EnaSupport": {"true"}, "BootMode": {"uefi-preferred"}, "ImdsSupport": {"v2.0"},
		"BlockDeviceMapping.1.DeviceName": {device}, "BlockDeviceMapping.1.Ebs.SnapshotId": {snapshot},
		"BlockDeviceMapping.1.Ebs.VolumeType": {"gp3"}, "BlockDeviceMapping.1.Ebs.DeleteOnTermination": {"true"},
		"BlockDeviceMapping.1.Ebs.VolumeSize": {strconv.Itoa(img.VolumeGiB)},
	}

	var r struct {
		Image string `xml:"imageId"`
	}
	if err := c.callEC2(ctx, v, &r); err != nil {
		return "", err
	}
	if r.Image == "" {
		return "", errors.New("EC2 named no image")
	}

	return r.Image, nil
}
