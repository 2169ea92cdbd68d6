package fakegluster

import (
	"fmt"
	"strings"

	"saltern/internal/command"
)

// ask answers questions in the shape of gluster 10.3.
func (p *Pool) ask(n *Node, args []string) command.Output {
	if args[0] == "pool" {
		return p.poolList(n)
	}

	v := p.volumeOf(n)
	if args[1] == "info" {
		return p.info(v)
	}
	if v == nil {
		return no(30806, "Volume %s does not exist", args[2])
	}
	if v.state != 1 {
		return no(30800, "Volume %s is not started", v.name)
	}
	if args[1] == "status" {
		for _, o := range p.peers(n) {
			if o.Vanished {
				return command.Output{Exit: 1, Stdout: []byte("Error : Request timed out\n")}
			}
		}
		return p.status(n, v, len(args) > 3)
	}

	if len(v.bricks) == 1 {
		return xmlOut(-1, 22,
			"This command is supported for only volumes of replicate/disperse type. Volume "+v.name+
				" is not of type replicate/disperse",
			"  <healInfo>\n    <bricks/>\n  </healInfo>\n")
	}

	v.heal(p.HealSpeed, p.Stuck)
	return p.healInfo(v, append(args, "")[4])
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (p *Pool) poolList(n *Node) command.Output {
	var b strings.Builder
	b.WriteString("  <peerStatus>\n")
	for _, o := range p.peers(n) {
		state, text := 3, "Peer in Cluster"
		if o.joining > 0 || n.joining > 0 {
			state, text = 4, "Accepted peer request"
		}

		if o.joining > 0 {
			o.joining--
		}

		fmt.Fprintf(&b,
			"    <peer>\n      <uuid>%s</uuid>\n      <hostname>%s</hostname>\n      <hostnames>\n        <hostname>%[2]s</hostname>\n      </hostnames>\n      <connected>%d</connected>\n      <state>%d</state>\n      <stateStr>%s</stateStr>\n    </peer>\n",
			o.UUID, o.Name, flag(o.Up || o.Vanished), state, text)
	}

	fmt.Fprintf(&b,
		"    <peer>\n      <uuid>%s</uuid>\n      <hostname>localhost</hostname>\n      <connected>1</connected>\n    </peer>\n  </peerStatus>\n",
		n.UUID)
	return ok(b.String())
}

func (p *Pool) info(v *volume) command.Output {
	var b strings.Builder
	b.WriteString("  <volInfo>\n    <volumes>\n")
	if v != nil {
		typ, arb := "Distribute", 0
		if len(v.bricks) > 1 {
			typ = "Replicate"
		}

		for _, br := range v.bricks {
			arb += flag(br.arbiter)
		}

		fmt.Fprintf(&b,
			"      <volume>\n        <name>%s</name>\n        <id>%s</id>\n        <status>%d</status>\n        <brickCount>%d</brickCount>\n        <distCount>1</distCount>\n        <replicaCount>%[4]d</replicaCount>\n        <arbiterCount>%d</arbiterCount>\n        <typeStr>%s</typeStr>\n        <bricks>\n",
			v.name, v.id, v.state, len(v.bricks), arb, typ)
		for _, br := range v.bricks {
			fmt.Fprintf(&b,
				"          <brick uuid=\"%s\">%s<name>%[2]s</name><hostUuid>%[1]s</hostUuid><isArbiter>%[3]d</isArbiter></brick>\n",
				br.node.UUID, br.name(), flag(br.arbiter))
		}

		b.WriteString("        </bricks>\n        <options>\n")
		for _, o := range v.options {
			fmt.Fprintf(&b,
				"          <option>\n            <name>%s</name>\n            <value>%s</value>\n          </option>\n",
				o[0], o[1])
		}

		b.WriteString("        </options>\n      </volume>\n")
	}

	fmt.Fprintf(&b, "      <count>%d</count>\n    </volumes>\n  </volInfo>\n", flag(v != nil))
	return ok(b.String())
}

func (p *Pool) status(n *Node, v *volume, detail bool) command.Output {
	var b strings.Builder
	nodes := 0
	for _, br := range v.bricks {
		if !br.node.Up {
			continue // a machine that is away is not mentioned
		}

		nodes++
		port, pid := "N/A", "-1"
		if p.shows(br) {
			port, pid = "50000", "123"
		}

		fmt.Fprintf(&b,
			"        <node>\n          <hostname>%s</hostname>\n          <path>%s</path>\n          <peerid>%s</peerid>\n          <status>%d</status>\n          <port>%s</port>\n          <pid>%s</pid>\n",
			br.node.Name, br.path, br.node.UUID, flag(p.shows(br)), port, pid)
		if detail {
			b.WriteString("          <sizeTotal>469762048</sizeTotal>\n          <sizeFree>436580352</sizeFree>\n          <inodesTotal>262144</inodesTotal>\n          <inodesFree>260868</inodesFree>\n")
		}

		b.WriteString("        </node>\n")
	}

	if !detail && len(v.bricks) > 1 {
		for _, o := range append(p.peers(n), n) {
			if !o.Up {
				continue
			}

			nodes++
			path := o.Name
			if o == n {
				path = "localhost"
			}

			pid := 99
			if o.healerDown {
				pid = -1
			}

			fmt.Fprintf(&b,
				"        <node>\n          <hostname>Self-heal Daemon</hostname>\n          <path>%s</path>\n          <peerid>%s</peerid>\n          <status>%d</status>\n          <port>N/A</port>\n          <pid>%d</pid>\n        </node>\n",
				path, o.UUID, flag(!o.healerDown), pid)
		}
	}

	return ok(fmt.Sprintf("  <volStatus>\n    <volumes>\n      <volume>\n        <volName>%s</volName>\n        <nodeCount>%d</nodeCount>\n%s        <tasks/>\n      </volume>\n    </volumes>\n  </volStatus>\n",
		v.name, nodes, b.String()))
}

func (p *Pool) healInfo(v *volume, form string) command.Output {
	var b strings.Builder
	b.WriteString("  <healInfo>\n    <bricks>\n")
	for _, br := range v.bricks {
		if !br.up {
			if form == "summary" {
				fmt.Fprintf(&b,
					"      <brick hostUuid=\"-\">\n        <name>%s</name>\n        <status>Failed to process entries completely. (Transport endpoint is not connected)totalNumberOfEntries0</status>\n      </brick>\n",
					br.name())
			} else {
				fmt.Fprintf(&b,
					"      <brick hostUuid=\"-\">\n        <name>%s</name>\n        <status>Transport endpoint is not connected</status>\n        <numberOfEntries>-</numberOfEntries>\n      </brick>\n",
					br.name())
			}

			continue
		}

		pending := v.pending(br)
		fmt.Fprintf(&b, "      <brick hostUuid=\"%s\">\n        <name>%s</name>\n", br.node.UUID, br.name())
		if form == "summary" {
			fmt.Fprintf(&b,
				"        <status>Connected</status>\n        <totalNumberOfEntries>%d</totalNumberOfEntries>\n        <numberOfEntriesInHealPending>%[1]d</numberOfEntriesInHealPending>\n        <numberOfEntriesInSplitBrain>0</numberOfEntriesInSplitBrain>\n        <numberOfEntriesPossiblyHealing>0</numberOfEntriesPossiblyHealing>\n",
				len(pending))
		} else {
			if form == "split-brain" {
				pending = nil
			}

			for _, i := range pending {
				fmt.Fprintf(&b, "        <file gfid=\"00000000-0000-0000-0000-%012d\">/f%d</file>\n", i, i)
			}

			fmt.Fprintf(&b,
				"        <status>Connected</status>\n        <numberOfEntries>%d</numberOfEntries>\n",
				len(pending))
		}

		b.WriteString("      </brick>\n")
	}

	b.WriteString("    </bricks>\n  </healInfo>\n")
	return ok(b.String())
}
