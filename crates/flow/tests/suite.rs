//! Every table passes the family's suite.

use tidemill_flow::flow_suite;
use tidemill_flow::linear::Linear;

flow_suite!(linear, Linear, fills 1.0);
