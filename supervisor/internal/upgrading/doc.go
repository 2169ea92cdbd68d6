// Package upgrading keeps the system of this machine up to date, if the machine was made from the
// image: [System] is this machine as one node of an upgrade, [Upgrades] drives upgrades of all
// nodes, [Channel] asks whether there is a newer version, and [Window] starts upgrades in the
// upgrade window.
package upgrading
