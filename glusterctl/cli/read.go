package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of lists, far above the sizes in any pool.
const (
	maxPeers  = 256
	maxVolume = 256
)

func readPeers(a answer) ([]Peer, error) {
	list := a.root.childAt("peerStatus")
	if list == nil {
		return nil, errors.New("no peerStatus")
	}

	els := list.children("peer")
	if len(els) > maxPeers {
		return nil, fmt.Errorf("%d peers", len(els))
	}

	peers := make([]Peer, 0, len(els))
	for _, e := range els {
		p := Peer{
			UUID:      e.textAt("uuid"),
			Hostname:  e.textAt("hostname"),
			Connected: e.textAt("connected") == "1",
			StateText: oneLine(e.textAt("stateStr")),
		}

		for _, h := range e.childAt("hostnames").children("hostname") {
			p.Names = append(p.Names, h.text)
		}

		if p.UUID == "" || p.Hostname == "" {
			return nil, errors.New("a peer without uuid or name")
		}

		if st := e.textAt("state"); st != "" {
			n, err := strconv.Atoi(st)
			if err != nil {
				return nil, fmt.Errorf("state of peer %s: %q", oneLine(p.Hostname), st)
			}
			p.State = n
		}

		p.Self = p.Hostname == "localhost" && e.childAt("state") == nil
		peers = append(peers, p)
	}

	return peers, nil
}

func readVolumes(a answer) ([]Volume, error) {
	list := a.root.childAt("volInfo", "volumes")
	if list == nil {
		return nil, errors.New("no volInfo")
	}

	els := list.children("volume")
	if len(els) > maxVolume {
		return nil, fmt.Errorf("%d volumes", len(els))
	}

	vols := make([]Volume, 0, len(els))
	for _, e := range els {
		v := Volume{Name: e.textAt("name"), ID: e.textAt("id"), Type: e.textAt("typeStr"), Options: map[string]string{}}
		var state int
		for _, f := range []struct {
			name string
			to   *int
		}{{"status", &state}, {"distCount", &v.Dist}, {"replicaCount", &v.Replica}, {"arbiterCount", &v.Arbiters}} {
			n, err := strconv.Atoi(e.textAt(f.name))
			if err != nil || n < 0 {
				return nil, fmt.Errorf("volume %s: %s is %q", oneLine(v.Name), f.name, e.textAt(f.name))
			}
			*f.to = n
		}

		v.State = VolumeState(state)
		for _, b := range e.childAt("bricks").children("brick") {
			br := Brick{Name: b.textAt("name"), HostUUID: b.textAt("hostUuid"), Arbiter: b.textAt("isArbiter") == "1"}
			if host, path, ok := SplitBrick(br.Name); !ok || host == "" || path == "" {
				return nil, fmt.Errorf("volume %s: brick %q", oneLine(v.Name), br.Name)
			}
			v.Bricks = append(v.Bricks, br)
		}

		if n, err := strconv.Atoi(e.textAt("brickCount")); err != nil || n != len(v.Bricks) || n == 0 || v.Name == "" {
			return nil, fmt.Errorf("volume %s: %s bricks announced, %d listed", oneLine(v.Name),
				oneLine(e.textAt("brickCount")), len(v.Bricks))
		}

		for _, o := range e.childAt("options").children("option") {
			v.Options[o.textAt("name")] = o.textAt("value")
		}

		vols = append(vols, v)
	}

	return vols, nil
}

// SplitBrick separates host and path of a brick. ok is false if name has no path.
func SplitBrick(name string) (host, path string, ok bool) {
	host, path, ok = strings.Cut(name, ":/")
	return host, "/" + path, ok && path != ""
}

// healDaemon is the host name of self-heal daemons in `volume status`.
const healDaemon = "Self-heal Daemon"

func readStatus(a answer, volume string) ([]Process, error) {
	for _, v := range a.root.childAt("volStatus", "volumes").children("volume") {
		if v.textAt("volName") != volume {
			continue
		}

		var out []Process
		for _, n := range v.children("node") {
			p := Process{HostUUID: n.textAt("peerid"), Online: n.textAt("status") == "1"}
			if n.textAt("hostname") != healDaemon {
				p.Name = n.textAt("hostname") + ":" + n.textAt("path")
			}

			p.Port, _ = strconv.Atoi(n.textAt("port")) // 0 if the process does not run: the text is "N/A"
			if pid, err := strconv.Atoi(n.textAt("pid")); err == nil && pid > 0 {
				p.PID = pid
			}

			if n.childAt("sizeTotal") != nil {
				var err1, err2 error
				p.Total, err1 = strconv.ParseUint(n.textAt("sizeTotal"), 10, 64)
				p.Free, err2 = strconv.ParseUint(n.textAt("sizeFree"), 10, 64)
				p.Sized = err1 == nil && err2 == nil
				p.Inodes, _ = strconv.ParseUint(n.textAt("inodesTotal"), 10, 64)
				p.InodesFree, _ = strconv.ParseUint(n.textAt("inodesFree"), 10, 64)
				p.FileSystem, p.MountOption = oneLine(n.textAt("fsName")), oneLine(n.textAt("mntOptions"))
			}

			out = append(out, p)
		}

		return out, nil
	}

	return nil, fmt.Errorf("volume %s is not in the answer", volume)
}

// readHeal parses the three forms of `heal info`. A count that is not a number is unknown: for a
// disconnected brick it is "-", or part of the status.
func readHeal(a answer) ([]Heal, error) {
	list := a.root.childAt("healInfo", "bricks")
	if list == nil {
		return nil, errors.New("no healInfo")
	}

	var out []Heal
	for _, b := range list.children("brick") {
		h := Heal{Brick: b.textAt("name"), Status: oneLine(b.textAt("status"))}
		h.Connected = h.Status == "Connected"
		h.Total = countOf(b, "totalNumberOfEntries")
		if !h.Total.Known {
			h.Total = countOf(b, "numberOfEntries")
		}

		h.Pending = countOf(b, "numberOfEntriesInHealPending")
		h.SplitBrain = countOf(b, "numberOfEntriesInSplitBrain")
		for _, f := range b.children("file") {
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

func countOf(e *element, name string) Count {
	n, err := strconv.Atoi(e.textAt(name))
	return Count{N: max(n, 0), Known: err == nil && n >= 0}
}
