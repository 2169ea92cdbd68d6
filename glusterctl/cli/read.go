package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of lists: far above what a pool can be.
const (
	maxPeers  = 256
	maxVolume = 256
)

func readPeers(a answer) ([]Peer, error) {
	list := a.root.at("peerStatus")
	if list == nil {
		return nil, errors.New("no peerStatus")
	}

	els := list.all("peer")
	if len(els) > maxPeers {
		return nil, fmt.Errorf("%d peers", len(els))
	}

	peers := make([]Peer, 0, len(els))
	for _, e := range els {
		p := Peer{
			UUID:      e.str("uuid"),
			Hostname:  e.str("hostname"),
			Connected: e.str("connected") == "1",
			StateText: oneLine(e.str("stateStr")),
		}

		for _, h := range e.at("hostnames").all("hostname") {
			p.Names = append(p.Names, h.text)
		}

		if p.UUID == "" || p.Hostname == "" {
			return nil, errors.New("a peer without uuid or name")
		}

		if st := e.str("state"); st != "" {
			n, err := strconv.Atoi(st)
			if err != nil {
				return nil, fmt.Errorf("state of peer %s: %q", oneLine(p.Hostname), st)
			}
			p.State = n
		}

		p.Self = p.Hostname == "localhost" && e.at("state") == nil
		peers = append(peers, p)
	}

	return peers, nil
}

func readVolumes(a answer) ([]Volume, error) {
	list := a.root.at("volInfo", "volumes")
	if list == nil {
		return nil, errors.New("no volInfo")
	}

	els := list.all("volume")
	if len(els) > maxVolume {
		return nil, fmt.Errorf("%d volumes", len(els))
	}

	vols := make([]Volume, 0, len(els))
	for _, e := range els {
		v := Volume{Name: e.str("name"), ID: e.str("id"), Type: e.str("typeStr"), Options: map[string]string{}}
		var state int
		for _, f := range []struct {
			name string
			to   *int
		}{{"status", &state}, {"distCount", &v.Dist}, {"replicaCount", &v.Replica}, {"arbiterCount", &v.Arbiters}} {
			n, err := strconv.Atoi(e.str(f.name))
			if err != nil || n < 0 {
				return nil, fmt.Errorf("volume %s: %s is %q", oneLine(v.Name), f.name, e.str(f.name))
			}
			*f.to = n
		}

		v.State = VolumeState(state)
		for _, b := range e.at("bricks").all("brick") {
			br := Brick{Name: b.str("name"), HostUUID: b.str("hostUuid"), Arbiter: b.str("isArbiter") == "1"}
			if host, path, ok := SplitBrick(br.Name); !ok || host == "" || path == "" {
				return nil, fmt.Errorf("volume %s: brick %q", oneLine(v.Name), br.Name)
			}
			v.Bricks = append(v.Bricks, br)
		}

		if n, err := strconv.Atoi(e.str("brickCount")); err != nil || n != len(v.Bricks) || n == 0 || v.Name == "" {
			return nil, fmt.Errorf("volume %s: %s bricks announced, %d listed", oneLine(v.Name),
				oneLine(e.str("brickCount")), len(v.Bricks))
		}

		for _, o := range e.at("options").all("option") {
			v.Options[o.str("name")] = o.str("value")
		}

		vols = append(vols, v)
	}

	return vols, nil
}

// SplitBrick takes host:/path apart.
func SplitBrick(name string) (host, path string, ok bool) {
	host, path, ok = strings.Cut(name, ":/")
	return host, "/" + path, ok && path != ""
}

// healDaemon is the host name that `volume status` gives to self-heal daemons.
const healDaemon = "Self-heal Daemon"

func readStatus(a answer, volume string) ([]Process, error) {
	for _, v := range a.root.at("volStatus", "volumes").all("volume") {
		if v.str("volName") != volume {
			continue
		}

		var out []Process
		for _, n := range v.all("node") {
			p := Process{HostUUID: n.str("peerid"), Online: n.str("status") == "1"}
			if n.str("hostname") != healDaemon {
				p.Name = n.str("hostname") + ":" + n.str("path")
			}

			p.Port, _ = strconv.Atoi(n.str("port")) // "N/A" when it does not run
			if pid, err := strconv.Atoi(n.str("pid")); err == nil && pid > 0 {
				p.PID = pid
			}

			if n.at("sizeTotal") != nil {
				var err1, err2 error
				p.Total, err1 = strconv.ParseUint(n.str("sizeTotal"), 10, 64)
				p.Free, err2 = strconv.ParseUint(n.str("sizeFree"), 10, 64)
				p.Sized = err1 == nil && err2 == nil
				p.Inodes, _ = strconv.ParseUint(n.str("inodesTotal"), 10, 64)
				p.InodesFree, _ = strconv.ParseUint(n.str("inodesFree"), 10, 64)
				p.FileSystem, p.MountOption = oneLine(n.str("fsName")), oneLine(n.str("mntOptions"))
			}

			out = append(out, p)
		}

		return out, nil
	}

	return nil, fmt.Errorf("volume %s is not in the answer", volume)
}

// readHeal reads the three forms of `heal info`. What is not a number is
// unknown: the count of a brick that is away is "-", or glued into its status.
func readHeal(a answer) ([]Heal, error) {
	list := a.root.at("healInfo", "bricks")
	if list == nil {
		return nil, errors.New("no healInfo")
	}

	var out []Heal
	for _, b := range list.all("brick") {
		h := Heal{Brick: b.str("name"), Status: oneLine(b.str("status"))}
		h.Connected = h.Status == "Connected"
		h.Total = count(b, "totalNumberOfEntries")
		if !h.Total.Known {
			h.Total = count(b, "numberOfEntries")
		}

		h.Pending = count(b, "numberOfEntriesInHealPending")
		h.SplitBrain = count(b, "numberOfEntriesInSplitBrain")
		for _, f := range b.all("file") {
			h.Entries = append(h.Entries, HealEntry{Path: f.text, GFID: f.attr})
		}

		if h.Brick == "" {
			return nil, errors.New("a brick without a name")
		}

		out = append(out, h)
	}

	if len(out) == 0 {
		return nil, errors.New("no bricks")
	}

	return out, nil
}

func count(e *element, name string) Count {
	n, err := strconv.Atoi(e.str(name))
	return Count{N: max(n, 0), Known: err == nil && n >= 0}
}
