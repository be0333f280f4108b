// Package units decides which process of a group runs which unit. It does not use Kafka. A
// unit is a stream, or a lane of a job. Each process makes an [Offer] of its units
// ([Member]). The group's leader answers each offer with an [Assignment] ([Plan]).
//
// The plan keeps three promises. First, a unit that a member holds is not given to another
// member. If several members claim to hold it, the one of the newest generation counts.
// Second, each unit that a member can run is held in the end, a lane once there is room for
// it. Third, a held unit stays where it is unless a move makes the loads more equal.
package units
